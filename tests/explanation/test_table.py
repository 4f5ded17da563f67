"""Values and slices as tables: what was asked is shown, what does not fit is folded around it."""

import re
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.explanation.derive import explain
from pellucid.explanation.table import Slice
from pellucid.explanation.trace import IN_A_SHELL, Trace
from pellucid.explanation.trace_file import make_tensor_entry
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights

WORDS = [
    "The",
    "Ġanimal",
    "Ġdidn",
    "'t",
    "Ġcross",
    "Ġthe",
    "Ġstreet",
    "Ġbecause",
    "Ġit",
    "Ġwas",
    "Ġtoo",
    "Ġtired",
]
PATTERN = "blocks.5.attn.pattern"


@pytest.fixture(scope="module")
def attention() -> Trace:
    """A pattern of 9 heads over 12 tokens: each looks at itself, and in head 3 `it` at `animal`."""
    pattern = np.tile(np.eye(12), (1, 9, 1, 1)) * 0.5
    pattern[0, 3, 8, 1] = 0.25
    tape = Tape()
    tape.constant(PATTERN, pattern)
    return Trace(tape, {}, {"t": WORDS, "s": WORDS})


def part_of(trace: Trace, at: str, top: int = 6, lines: int | None = 40) -> Slice:
    found = explain(trace, at, top=top, most=lines)
    assert isinstance(found, Slice)
    return found


def shown(trace: Trace, at: str, width: int = 100, top: int = 6, lines: int | None = 40) -> list[str]:
    return list(part_of(trace, at, top, lines).to_lines(width=width))


def test_a_small_value_is_shown_whole_with_its_tokens() -> None:
    assert shown(pellucid.load("abcd").trace("A B"), "blocks.0.attn.pattern") == [
        "blocks.0.attn.pattern [b=1 h=1 t=2 s=2]   "
        "P, attention pattern: the share that each query gives to each key",
        "           s=0 A    s=1 B",
        "  t=0 A        1        0",
        "  t=1 B  0.19557  0.80443",
    ]


def test_a_matrix_is_shown_as_the_formulas_use_it() -> None:
    text = "\n".join(shown(pellucid.load("abcd").trace("A B"), "unembed.weight"))
    assert "W_U[c,v]" in text
    assert "  c=1      0      1      1      0" in text


def test_one_free_axis_is_a_row_where_it_fits_and_else_a_column(attention: Trace) -> None:
    for at in (f"{PATTERN}[h=3,t=8]", f"{PATTERN}[h=3,t=it]"):
        lines = shown(attention, at)
        assert lines[0].startswith(f"{PATTERN}[h=3,t=8] [s=12]  (t=8 Ġit)")
        assert [line.split() for line in lines[1:]] == [
            [f"s={i}", word, {1: "0.25", 8: "0.5"}.get(i, "0")] for i, word in enumerate(WORDS)
        ]
    assert len(shown(attention, f"{PATTERN}[h=3,t=8]", width=200)) == 3


def test_two_free_axes_are_a_matrix(attention: Trace) -> None:
    lines = shown(attention, f"{PATTERN}[h=3]", width=200)
    assert lines[1].split()[::2] == [f"s={i}" for i in range(12)]
    assert lines[10].split()[:4] == ["t=8", "Ġit", "0", "0.25"]
    heads = shown(attention, f"{PATTERN}[t=it]", width=200)
    assert [line.split()[0] for line in heads[2:11]] == [f"h={h}" for h in range(9)]


def test_a_narrow_table_keeps_what_was_asked_and_the_largest(attention: Trace) -> None:
    lines = shown(attention, f"{PATTERN}[t=it]", width=60)
    assert "s=8 Ġit" in lines[1] and "s=1 Ġanimal" in lines[1] and "…" in lines[1]
    assert all(len(line) <= 60 for line in lines[1:11])


def test_lines_bound_the_text_and_without_a_bound_everything_is_there(attention: Trace) -> None:
    short = shown(attention, PATTERN)
    assert len(short) <= 40
    assert any(f'at="{PATTERN}[h=' in line for line in short)
    whole = "\n".join(shown(attention, PATTERN, lines=None, width=20))
    assert "…" not in whole
    assert whole.count("Ġtired") == 2 * 9
    assert len(re.findall(r"\b0\.5\b", whole)) >= 9 * 12


def test_top_says_how_many_of_the_largest_a_folded_axis_keeps() -> None:
    tape = Tape()
    tape.constant("x", np.random.default_rng(0).normal(size=500))
    trace = Trace(tape)
    for top in (1, 3, 9):
        lines = shown(trace, "x", top=top)
        kept = {int(found[1]) for line in lines if (found := re.match(r"\s+i=(\d+)\s", line))}
        assert kept >= {0, 499, *np.argsort(-np.abs(tape["x"]))[:top].tolist()}
        assert len(kept) <= 2 * top + 4


def test_an_option_is_advised_only_where_it_changes_the_text(attention: Trace) -> None:
    tape = Tape()
    tape.constant("x", np.arange(200.0).reshape(10, 20))
    for trace, at in ((attention, PATTERN), (attention, f"{PATTERN}[h=3]"), (Trace(tape), "x")):
        for width in (40, 100, 300):
            lines = shown(trace, at, width)
            advised = "\n".join(lines)
            if top := re.search(r"top=(\d+)", advised):
                assert shown(trace, at, width, top=int(top[1])) != lines
            assert ("lines=None" in advised) == (shown(trace, at, width, lines=None) != lines)


def test_a_shell_gets_its_own_options(attention: Trace) -> None:
    lines = "\n".join(part_of(attention, PATTERN).to_lines(width=60, more=IN_A_SHELL))
    assert "--lines 0" in lines and "--at " in lines and "lines=" not in lines


def test_a_large_value_has_its_sum_and_extremes() -> None:
    tape = Tape()
    tape.constant("x", np.arange(200.0).reshape(10, 20))
    lines = shown(Trace(tape), "x")
    assert lines[-1] == "of all 200: sum 19900, smallest 0 at x[i=0,j=0], largest 199 at x[i=9,j=19]"
    assert "smallest 60 at x[i=3,j=0], largest 79 at x[i=3,j=19]" in repr(part_of(Trace(tape), "x[i=3]"))


def test_every_value_of_every_config_can_be_shown_at_any_width() -> None:
    for config in CONFIGS.values():
        tape = forward(config, weights(config), [[1, 2, 0]], [[2, -100, 1]])
        tape.backward(tape.ref("loss"))
        for name in tape.values:
            found = explain(Trace(tape), name, depth=0)
            assert str(found) and len(repr(found)) < 400
            if isinstance(found, Slice):
                assert list(found.to_lines(width=1)) and found._repr_html_()


def test_numbers_that_are_not_finite_are_shown() -> None:
    tape = Tape()
    tape.constant("x", np.array([[np.nan, -np.inf], [np.inf, 1.0]]))
    assert [line.split() for line in shown(Trace(tape), "x")[2:]] == [["i=0", "nan", "-∞"], ["i=1", "∞", "1"]]
    tape.constant("none", np.full(200, np.nan))
    assert shown(Trace(tape), "none") and "no numbers" in repr(part_of(Trace(tape), "none"))


def test_data_of_a_slice_is_the_slice(attention: Trace) -> None:
    data = part_of(attention, f"{PATTERN}[h=3,t=it]").to_data()
    assert (data["at"], data["axes"], data["shape"]) == (f"{PATTERN}[h=3,t=8]", ["s"], [12])
    assert data["values"] == attention.value(PATTERN)[0, 3, 8].tolist()
    assert data["labels"] == {"s": WORDS} and data["tokens"]["t"] == "Ġit"
    whole = part_of(attention, PATTERN).to_data()
    assert whole == {"name": PATTERN} | make_tensor_entry(attention, PATTERN)


def test_a_slice_from_python_has_its_numbers_a_short_repr_and_html() -> None:
    found = pellucid.load("abcd").explain("A B", at="probs[t=B]")
    assert isinstance(found, Slice)
    assert found.value.shape == (4,) and found.axes == ("v",) and found.texts("v") == ["A", "B", "C", "D"]
    assert repr(found).startswith("<Slice probs[t=1] [v=4]: sum 1, ") and "\n" not in repr(found)
    assert "v=2 C" in str(found) and "v=2 C" in found._repr_html_()
    tape = Tape()
    tape.constant("logits", np.zeros((1, 1, 2)))
    hostile = explain(Trace(tape, {}, {"v": ["<script>", "\x1b[31m\u202e"]}), "logits")
    assert isinstance(hostile, Slice)
    html = hostile._repr_html_()
    assert "\x1b" not in str(hostile) and "\\x1b[31m\\u202e" in str(hostile)
    assert "<script" not in html and "&lt;script&gt;" in html and "\x1b" not in html and "\u202e" not in html


def test_a_trace_file_shows_slices_too(tmp_path: Path) -> None:
    from pellucid.explanation.trace_file import read, write

    write(pellucid.load("abcd").trace("A B"), tmp_path / "t.json")
    assert "v=2 C" in str(explain(read(tmp_path / "t.json"), "probs[t=B]"))
