"""A ledger as text: no line wider than the terminal, nothing a terminal would obey, and the numbers of it."""

from dataclasses import replace

import pytest

from pellucid.base.columns import display_width
from pellucid.base.errors import UsageError
from pellucid.generation.ledger.content import Shortening
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.ledger.text import format_ledger, format_token
from tests.generation.small_ledgers import make_beam_ledger, make_small_ledger, make_speculative_ledger

LEDGERS = [make_small_ledger(), make_small_ledger(3, 2), make_beam_ledger(), make_speculative_ledger()]


@pytest.mark.parametrize("ledger", LEDGERS, ids=["one", "two", "beams", "speculative"])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(ledger: Ledger, width: int) -> None:
    for line in format_ledger(ledger, width):
        assert display_width(line) <= width, line


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_of_a_token_is_wider_than_the_terminal(width: int) -> None:
    ledger = make_small_ledger()
    for number in range(1, 7):
        for line in format_token(ledger, number, width=width):
            assert display_width(line) <= width, line


def test_the_table_has_a_row_for_each_token() -> None:
    ledger = make_small_ledger()
    lines = list(format_ledger(ledger))
    start = next(i for i, line in enumerate(lines) if line.startswith("#"))
    for number, (line, entry) in enumerate(
        zip(lines[start + 1 :], ledger.completions[0].entries, strict=False)
    ):
        assert line.split()[:2] == [str(number + 1), ledger.texts[entry.id]]
        assert f"{entry.surprisal:.3f}" in line and f"{entry.u:.4f}" in line


def test_a_narrow_table_keeps_number_token_probability_and_surprisal() -> None:
    lines = list(format_ledger(make_small_ledger(), 40))
    head = next(line for line in lines if line.startswith("#"))
    assert head.split()[:4] == ["#", "token", "p", "surprisal"]


def test_a_text_of_a_file_cannot_move_the_cursor() -> None:
    ledger = make_small_ledger()
    hostile = replace(
        ledger,
        texts=dict.fromkeys(ledger.texts, "\x1b[2J\u202e\n"),
        model=replace(ledger.model, name="\x1b[31mred"),
        sources={"temperature": "\x07"},
    )
    text = "\n".join([*format_ledger(hostile), *format_token(hostile, 1)])
    assert text.replace("\n", "").isprintable()


def test_the_details_of_a_token_say_what_each_sampler_removed_and_where_u_fell() -> None:
    ledger = make_small_ledger()
    text = "\n".join(format_token(ledger, 3))
    entry = ledger.completions[0].entries[2]
    assert "→ temperature 0.8" in text and "→ top_k 5: removed 3" in text
    assert "▸  ·猫" in text and repr(entry.u) in text
    assert f"seed {ledger.seed}, choice 0" in text


def test_tokens_are_numbered_from_one_and_from_the_end() -> None:
    ledger = make_small_ledger()
    assert list(format_token(ledger, -1)) == list(format_token(ledger, 6))
    for number, choice in ((0, 0), (7, 0), (-7, 0), (1, 1)):
        with pytest.raises(UsageError):
            list(format_token(ledger, number, choice))


def test_beams_are_a_tree_with_scores_and_penalties() -> None:
    lines = list(format_ledger(make_beam_ledger()))
    assert "├ ·cat -0.6931 -0.6931" in lines
    assert "│ ├ . -0.5108 -1.2040 ✓ / 2 = -0.6020  ← choice 0" in lines


def test_speculative_steps_say_what_was_accepted() -> None:
    lines = list(format_ledger(make_speculative_ledger()))
    assert "before token 2 prompt look-up proposed 3: accepted ·the ·猫; rejected <b>&" in lines


def test_what_the_context_rule_did_is_said() -> None:
    ledger = replace(make_small_ledger(), shortenings=(Shortening(0, 3, 3, 2),))
    assert any("3 dropped before token 4" in line for line in format_ledger(ledger))
