"""A sheet's program gives the run's own numbers, from what is printed."""

import dataclasses

import numpy as np
import pytest

import pellucid
from pellucid import ops
from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation import address as addresses
from pellucid.explanation.rule import compute, find_keys
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets
from pellucid.learning.sheets.drafts import propose_focus
from pellucid.learning.sheets.layout import describe_run, lay_out_given
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.page import write_html, write_markdown
from pellucid.learning.sheets.sheet import Sheet, significant_digits
from pellucid.reference.tape import Tape


@pytest.fixture(scope="module")
def example_3() -> Trace:
    return pellucid.trace("example-3", "A B", target="C", update="sgd", lr=0.5, freeze="embed.weight")


@pytest.fixture(scope="module")
def all_of_example_3(example_3: Trace) -> Sheet:
    names = ["unembed", *(f"blocks.0.attn.{x}_proj" for x in "qkv")]
    return make_sheet(example_3, [f"{name}.weight@1" for name in names], boxes=200)


def cell(trace: Trace, at: str) -> float:
    part = addresses.parse(trace, at)
    assert part.cell is not None
    return float(trace.value(part.name)[part.cell])


def test_every_box_gives_the_run_s_number_at_the_asked_digits(
    example_3: Trace, all_of_example_3: Sheet
) -> None:
    sheet = all_of_example_3
    asked = [box for box in sheet.boxes if "~" not in box.key]
    assert len(asked) > 70
    for box in asked:
        assert round(sheet.key[box.key], box.decimals) == round(cell(example_3, box.key), box.decimals)


def test_a_rule_reads_only_printed_numbers_and_earlier_boxes(all_of_example_3: Sheet) -> None:
    known = set(all_of_example_3.given)
    for box in all_of_example_3.boxes:
        for rule in (box.rule, *box.mistakes.values()):
            assert known.issuperset(find_keys(rule)), box.key
        known.add(box.key)


def test_a_softmax_row_asks_its_powers_and_their_sum_once(example_3: Trace) -> None:
    sheet = make_sheet(example_3, ["blocks.0.attn.pattern[t=1]"], stop=["blocks.0.attn.scores"])
    assert [box.symbol for box in sheet.boxes] == ["e^S[1,0]", "e^S[1,1]", "Σ e^S[1,·]", "P[1,0]", "P[1,1]"]
    assert [check.sum for check in sheet.checks] == [1.0]


def test_a_copy_is_seen_through(example_3: Trace) -> None:
    """The mask allows the score, and the embedding is a row of E: neither is a number to compute."""
    sheet = make_sheet(example_3, ["blocks.0.attn.masked[t=1,s=0]"], boxes=30)
    assert [box.key for box in sheet.boxes if box.focus] == ["blocks.0.attn.scores[t=1,s=0]"]
    assert "embed.weight[v=1,c=0]" in sheet.given
    assert not any(key.startswith("embedded") for key in sheet.given)


def test_what_an_update_did_not_change_is_not_asked_again() -> None:
    trace = pellucid.trace("abcd", "A B", target="C", update="sgd", only="unembed.weight")
    sheet = make_sheet(trace, ["probs@1[t=1]"], boxes=100)
    assert not any(box.step.startswith("blocks.") and "@1" in box.step for box in sheet.boxes)


def test_a_closed_gate_is_a_condition_on_the_learner_s_own_number() -> None:
    trace = pellucid.trace("example-5", "A B", target="C", backward=True)
    sheet = make_sheet(trace, ["d.blocks.0.mlp.up[t=1]"], boxes=200)
    closed = sheet.by_key["d.blocks.0.mlp.up[t=1,f=1]"]
    assert sheet.key[closed.key] == 0
    assert compute(closed.rule, sheet.key | {"blocks.0.mlp.up[t=1,f=1]": 1.0}) == pytest.approx(
        0.65275, abs=1e-5
    )


def test_the_loss_and_its_gradient_have_the_textbook_form(example_3: Trace) -> None:
    sheet = make_sheet(example_3, ["nll[t=1]", "d.logits[t=1]"], stop=["probs"])
    assert {*find_keys(sheet.by_key["nll[t=1]"].rule)} == {"probs[t=1,v=2]"}
    for v, expected in enumerate(example_3.value("d.logits")[0, 1]):
        assert sheet.key[f"d.logits[t=1,v={v}]"] == pytest.approx(expected, abs=1e-4)


def test_a_long_sum_is_folded_with_its_exact_remainder() -> None:
    rng = np.random.default_rng(0)
    tape = pellucid.Tape()
    x, w = (tape.parameter(name, rng.normal(size=shape)) for name, shape in (("x", 40), ("w", (40, 3))))
    tape("y", pellucid.ops.einsum, x, w, spec="i,ij->j")
    sheet = make_sheet(Trace(tape), ["y"])
    folded = [{*find_keys(box.rule)} for box in sheet.boxes]
    shown = [{key for key in keys if key.startswith("x")} for keys in folded]
    assert shown[0] == shown[1] == shown[2] and len(shown[0]) == 4
    for j, box in enumerate(sheet.boxes):
        assert sheet.key[box.key] == pytest.approx(tape["y"][j], abs=10.0**-box.decimals)
        assert sum("~rest" in key for key in folded[j]) == 1


def test_a_large_power_of_e_is_asked_with_the_maximum_subtracted() -> None:
    tape = pellucid.Tape()
    tape("p", pellucid.ops.softmax, tape.parameter("s", [20.5, 19.25, 18.0]))
    sheet = make_sheet(Trace(tape), ["p"])
    assert sheet.boxes[0].symbol == "max s[·]"
    assert max(abs(value) for key, value in sheet.key.items() if "~" in key) < 21


def test_a_value_to_stop_at_is_printed_under_its_own_name(example_3: Trace) -> None:
    """At A the head output is a copy of A's value; the formula reads the attention output, and so do we."""
    at = ["unembed.weight@1[v=2]", "logits[t=0,v=2]"]
    sheet = make_sheet(example_3, at, stop=["probs", "blocks.0.attn_out"])
    outputs = {key for key in sheet.given if key.startswith("blocks.")}
    assert outputs == {f"blocks.0.attn_out[t={t},c={c}]" for t in range(2) for c in range(2)}


def test_boxes_stop_before_a_level_that_would_exceed_the_limit(example_3: Trace) -> None:
    for limit in (1, 6, 12, 30):
        sheet = make_sheet(example_3, ["probs[t=1,v=2]"], boxes=limit)
        assert len(sheet.boxes) <= max(limit, 1)


def test_the_printed_digits_determine_every_asked_digit() -> None:
    trace = pellucid.trace("example-3", ["A B", "A A", "B A"], target=["C", "D", "C"], backward=True)
    sheet = make_sheet(trace, ["loss", "d.unembed.weight"], stop=["blocks.*"], boxes=100)
    inexact = {key: number for key, number in sheet.given.items() if not number.exact}
    assert inexact and max(significant_digits(number.text) for number in inexact.values()) <= 6
    for sign in (-1, 1):
        for moved, number in inexact.items():
            values = {key: other.value for key, other in sheet.given.items()}
            values[moved] += sign * number.half_unit * 0.99
            for box in sheet.boxes:
                values[box.key] = compute(box.rule, values)
                if box.focus:
                    assert round(values[box.key], box.decimals) == round(sheet.key[box.key], box.decimals)


def test_a_proposed_row_can_be_done() -> None:
    trace = pellucid.trace("example-6", "A B A", target="C")
    for focus in propose_focus(trace):
        assert make_sheet(trace, [focus]).boxes


def test_a_focus_that_is_printed_asks_nothing(example_3: Trace) -> None:
    with pytest.raises(UsageError, match=r"unembed\.weight"):
        make_sheet(example_3, ["unembed.weight[v=1]"])
    with pytest.raises(AddressError, match="ids"):
        make_sheet(example_3, ["ids"])


def test_a_position_without_a_target_adds_nothing_to_the_loss() -> None:
    """Whatever the size of the vocabulary: its nll is 0 and is not asked."""
    model = pellucid.Model.from_config("abcd")
    config = dataclasses.replace(model.config, vocab_size=500)
    trace = pellucid.Model.from_config(config).trace([1, 2, 3], target=[4, 5])
    sheet = make_sheet(trace, ["loss"], stop=["probs"])
    assert [box.key for box in sheet.boxes] == ["nll[t=2]", "nll[t=3]", "loss"]


def test_a_sheet_says_which_tokens_are_the_target() -> None:
    sheet = make_sheet(pellucid.trace("abcd", "A B", target="C D"), ["loss"])
    assert (sheet.source["prompts"], sheet.source["targets"]) == (["A B"], ["C D"])


def test_what_rounding_leaves_of_a_sum_that_cancels_is_asked_as_zero() -> None:
    """The gradient of a key's bias is 0: the rows of dS sum to 0. float64 leaves 1e-19 of it."""
    tape = pellucid.Tape()
    x = tape.parameter("x", [0.1, 0.2, -0.3])
    tape("y", pellucid.ops.einsum, x, spec="i->")
    assert tape["y"] != 0
    (box,) = make_sheet(Trace(tape), ["y"], digits=4).boxes
    assert box.decimals == 4


def test_a_value_that_the_glossary_does_not_know_is_printed_with_what_the_program_says_of_it() -> None:
    tape = Tape()
    x = tape.constant("x", [1.0, 2.0])
    tape.describe(x, "i", "X", "what comes in")
    tape.describe(tape("y", ops.add, x, x), "i", "Y", "twice that")
    sheet = make_sheet(Trace(tape, {}), ["y"])
    (given,) = lay_out_given(sheet)
    assert (given.symbol, given.about) == ("X", "what comes in")


def equal(lesson: int, part: int = 1) -> list[str]:
    return list(lesson_sheets(find_lesson(lesson))[part - 1].source.get("equal", []))


@pytest.mark.parametrize(
    ("lesson", "part", "wanted"),
    [
        (13, 1, ["M = S where it is not −∞", "O = Z"]),
        (14, 1, ["O@1 = O"]),
        (15, 1, ["O = Z", "dZ = dO", "dS = dM"]),
        (15, 2, ["dO = G"]),
        (18, 1, []),
        (19, 3, ["X = X_post⁰", "M = S where it is not −∞"]),
    ],
)
def test_a_symbol_without_numbers_of_its_own_is_said_to_equal_another(
    lesson: int, part: int, wanted: list[str]
) -> None:
    assert equal(lesson, part) == wanted


def test_where_no_mask_changes_a_row_it_is_derived_from_the_run_of_any_model() -> None:
    sheet = make_sheet(pellucid.trace("abcd", "A B"), ["blocks.0.attn.pattern[t=1]"])
    assert sheet.source["equal"] == ["M = S where it is not −∞"]
    assert ("equal here", "M = S where it is not −∞") in describe_run(sheet)
    for page in (write_markdown(sheet), write_html(sheet, "code")):
        assert "equal here" in page and "M = S" in page
