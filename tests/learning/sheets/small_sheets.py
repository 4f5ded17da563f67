"""A small worksheet, written by hand: one row of a softmax, the value that it mixes, and a loss."""

from pellucid.explanation.rule import RuleCall
from pellucid.learning.sheets.sheet import Box, Given, Sheet, SumCheck


def make_softmax_sheet() -> Sheet:
    """Returns a sheet of 7 boxes: two powers, their sum, a row of P, Z with a remainder, and −ln P."""
    given = {
        "scores[t=1,s=0]": Given("0.5", True, "S[1,0]"),
        "scores[t=1,s=1]": Given("1.25", True, "S[1,1]"),
        "v[s=0,c=0]": Given("2", True, "V[0,0]"),
        "v[s=0,c=1]": Given("-1", True, "V[0,1]"),
        "v[s=1,c=0]": Given("0.3333", False, "V[1,0]"),
        "v[s=1,c=1]": Given("4", True, "V[1,1]"),
        "z[t=1,c=0]~rest": Given("0.012", False, "rest of Z[1,0]"),
    }

    def box(key: str, symbol: str, step: str, formula: str, rule: RuleCall, **more: object) -> Box:
        return Box(key, symbol, f"the {step}", step, step, "fwd", formula, rule, 4, **more)  # type: ignore[arg-type]

    powers = [
        box(
            f"pattern~{s}",
            f"E[1,{s}]",
            "pattern",
            "P = e^S / Σ e^S",
            RuleCall("exp", (f"scores[t=1,s={s}]",)),
        )
        for s in range(2)
    ]
    total = box("pattern~2", "ΣE[1]", "pattern", "P = e^S / Σ e^S", RuleCall("+", ("pattern~0", "pattern~1")))
    pattern = [
        box(
            f"pattern[t=1,s={s}]",
            f"P[1,{s}]",
            "pattern",
            "P = e^S / Σ e^S",
            RuleCall("divide", (f"pattern~{s}", "pattern~2")),
            mistakes={"did not divide by the sum": f"pattern~{s}"},
        )
        for s in range(2)
    ]
    terms = [RuleCall("multiply", (f"pattern[t=1,s={s}]", f"v[s={s},c=0]")) for s in range(2)]
    mix = box(
        "z[t=1,c=0]",
        "Z[1,0]",
        "z",
        "Z = P V",
        RuleCall("+", (*terms, RuleCall("rest", ("z[t=1,c=0]~rest",)))),
    )
    loss = box(
        "nll",
        "L",
        "nll",
        "L = −ln P",
        RuleCall("negative", (RuleCall("log", ("pattern[t=1,s=1]",)),)),
        focus=True,
    )
    return Sheet(
        "One row of attention",
        (*powers, total, *pattern, mix, loss),
        given,
        (SumCheck(("pattern[t=1,s=0]", "pattern[t=1,s=1]"), 1.0),),
        source={"model": "by hand", "prompts": ["A B"], "targets": ["C"]},
        labels={"t": ("A", "B"), "s": ("A", "B")},
    )
