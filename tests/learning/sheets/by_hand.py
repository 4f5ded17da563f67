"""A sheet small enough to check by hand: the softmax of two scores, and what it makes of two values.

S = (0.5, 1.2)    e^S = (1.6487, 3.3201)    Σ = 4.9688    P = (0.3318, 0.6682)
V = (2, −1)       Z = P₀V₀ + P₁V₁ = −0.0046    N = 3 (exact)    L = −ln P₀ = 1.1032
"""

from dataclasses import replace

from pellucid.explanation.rule import Rule, RuleCall
from pellucid.learning.sheets.sheet import Box, Given, Sheet, SumCheck, format_answer


def call(function: str, *args: Rule) -> RuleCall:
    return RuleCall(function, args)


def make_box(key: str, rule: Rule, decimals: int = 4, **more: object) -> Box:
    box = Box(
        key, key, f"meaning of {key}", key.rstrip("01"), "softmax", "fwd", "P = softmax(S)", rule, decimals
    )
    return replace(box, **more)  # type: ignore[arg-type]


SHEET = Sheet(
    title="a softmax by hand",
    given={
        "S0": Given("0.5", True, "S0"),
        "S1": Given("1.2", True, "S1"),
        "V0": Given("2", True, "V0"),
        "V1": Given("-1", True, "V1"),
    },
    boxes=(
        make_box("E0", call("exp", "S0")),
        make_box("E1", call("exp", "S1")),
        make_box("T", call("+", "E0", "E1")),
        make_box("P0", call("divide", "E0", "T"), mistakes={"not divided by the sum": "E0"}),
        make_box("P1", call("divide", "E1", "T"), mistakes={"neighboring cell": call("divide", "E0", "T")}),
        make_box("Z", call("+", call("multiply", "P0", "V0"), call("multiply", "P1", "V1"))),
        make_box("N", call("subtract", "V0", "V1"), 0, exact=True, op="subtract"),
        make_box(
            "L",
            call("negative", call("log", "P0")),
            op="nll",
            mistakes={"logarithm to base 10": call("negative", call("log10", "P0"))},
        ),
    ),
    checks=(SumCheck(("P0", "P1"), 1.0),),
)
KEY = {box.key: format_answer(SHEET.key[box.key], box.decimals) for box in SHEET.boxes}


def answer(**answers: str) -> Sheet:
    """Returns the sheet with these answers, and with the key's in all other boxes."""
    return replace(SHEET, answers={**KEY, **answers})


def answer_only(**answers: str) -> Sheet:
    """Returns the sheet with these answers, and all other boxes open."""
    return replace(SHEET, answers=answers)
