"""A reference becomes the number, formula, table or picture that it names, or an error that says what to
write."""

from types import ModuleType

import pytest

import pellucid
from pellucid.base.errors import PellucidError
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.placeholders import (
    PageAnswer,
    PageCode,
    PageFold,
    PageNumber,
    PageNumbers,
    PageSheet,
    PageTable,
    References,
)
from pellucid.learning.lessons.program import LessonProgram


def make_references() -> References:
    module = ModuleType("l99_test")
    module.__file__ = "l99_test.py"

    def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
        model = pellucid.load("abcd")
        return {"first": model.trace(prompt, target="C", backward=True), "other": model.trace("B A")}

    vars(module).update(run=run, numbers=lambda: {"updates": 6.0, "ratio": 1 / 3})
    return References(LessonProgram(module), ("", "end"))


REFERENCES = make_references()


def text(reference: str) -> str:
    found = REFERENCES.resolve(reference)
    assert isinstance(found, PageNumber | PageCode)
    return found.text


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("probs[t=1,v=2]", "0.3238"),
        ("probs[t=1,v=2] 2", "0.32"),
        ("probs[t=B,v=C]", "0.3238"),
        ("d.unembed.weight[v=2,c=0]", "−0.1322"),
        ("embed.weight[v=0,c=0]", "1"),
        ("other/probs[t=1,v=2]", "0.1762"),
        ("= blocks.0.attn.pattern[t=1,s=0]", "e^0 / (e^0 + e^1.414)"),
        ("formula blocks.0.attn.pattern", "P[t,s] = e^M[t,s] / Σ_s' e^M[t,s']"),
        ("size probs v", "4"),
        ("words probs v", "four"),
        ("number updates", "6"),
        ("number ratio 1", "0.3"),
        ("words updates", "six"),
        ("config gpt2.vocab_size", "50,257"),
        ("count gpt2", "124,439,808"),
    ],
)
def test_a_reference_is_the_number_that_the_run_has(reference: str, expected: str) -> None:
    assert text(reference) == expected


def test_a_row_is_its_numbers_each_with_its_address() -> None:
    found = REFERENCES.resolve("blocks.0.attn.q[t=1]")
    assert isinstance(found, PageNumbers)
    assert [(number.text, number.address) for number in found.numbers] == [
        ("0", "blocks.0.attn.q[t=1,d=0]"),
        ("2", "blocks.0.attn.q[t=1,d=1]"),
    ]


def test_a_weight_stands_in_a_table_as_the_formulas_use_it() -> None:
    found = REFERENCES.resolve("table unembed.weight")
    assert isinstance(found, PageTable)
    rows = [[cell.text for cell in row] for row in found.rows]
    assert rows[0] == ["W_U[c,v]", "v=0 A", "v=1 B", "v=2 C", "v=3 D"]
    assert rows[1] == ["c=0", "1", "0", "0", "1"]


def test_answers_and_sheets() -> None:
    answer = REFERENCES.resolve("answer probs[t=1,v=2]")
    assert isinstance(answer, PageAnswer) and answer.number == REFERENCES.resolve("probs[t=1,v=2]")
    assert [REFERENCES.resolve(mark) for mark in ("answer", "/answer")] == [PageFold(True), PageFold(False)]
    assert REFERENCES.resolve("sheet 2 end") == PageSheet(2, "end")


@pytest.mark.parametrize(
    ("reference", "fact"),
    [
        ("prob[t=1]", "probs"),
        ("probs", "table probs"),
        ("otter/probs[t=1,v=2]", "other"),
        ("formla probs", "formula"),
        ("= ids[t=1]", "given"),
        ("formula ids", "given"),
        ("number update", "updates"),
        ("words ratio", "no word"),
        ("size probs s", "axis"),
        ("picture loss", "picture"),
        ("sheet 4", "level"),
        ("sheet 2 start", "end"),
        ("transfer/probs", "level 3"),
        ("config gpt2.vocab_siz", "vocab_size"),
        ("config gpt22.vocab_size", "gpt2"),
        ("table blocks.0.attn.q[t=1,d=0]", "axes"),
    ],
)
def test_a_wrong_reference_says_what_there_is(reference: str, fact: str) -> None:
    with pytest.raises(PellucidError, match=fact):
        REFERENCES.resolve(reference)
