"""What stands on a sheet's pages: matrices as tables with tokens, and arithmetic that can be recomputed."""

import dataclasses
import re

import pytest

from pellucid.explanation.rule import RuleCall, find_keys
from pellucid.learning.sheets.layout import (
    NumberList,
    NumberTable,
    describe_run,
    lay_out_given,
    lay_out_steps,
)
from pellucid.learning.sheets.sheet import Box, Given, Sheet
from tests.learning.sheets.small_sheets import make_softmax_sheet

SHEET = make_softmax_sheet()


def make_matrix(name: str, symbol: str, cells: list[tuple[str, str]]) -> Sheet:
    """Returns a sheet that is given these cells: the index in the key, and in the symbol."""
    given = {f"{name}[{key}]": Given(str(i), True, f"{symbol}[{at}]") for i, (key, at) in enumerate(cells)}
    return Sheet("A matrix", (), given, labels={"t": ("A", "B"), "v": ("A", "B", "C")})


def test_a_matrix_of_which_every_cell_is_given_is_a_table_with_tokens() -> None:
    table = next(block for block in lay_out_given(SHEET) if isinstance(block, NumberTable))
    assert table.columns == ("0", "1")
    assert table.rows == (("0 (A)", ("2", "-1")), ("1 (B)", ("0.3333", "4")))


def test_a_transposed_weight_has_the_rows_of_the_formula() -> None:
    cells = [(f"v={v},c={c}", f"{c},{v}") for v in range(3) for c in range(2)]
    (table,) = lay_out_given(make_matrix("unembed.weight", "W_U", cells))
    assert isinstance(table, NumberTable)
    assert table.columns == ("0 (A)", "1 (B)", "2 (C)") and [label for label, _ in table.rows] == ["0", "1"]
    assert table.rows[1][1] == ("1", "3", "5")
    assert (table.symbol, table.about) == ("W_U", "unembedding weight")


def test_each_head_is_a_table() -> None:
    cells = [(f"h={h},t={t},s={s}",) * 2 for h in range(2) for t in range(2) for s in range(2)]
    plain = [(key, re.sub(r"\w=", "", at)) for key, at in cells]
    tables = list(lay_out_given(make_matrix("blocks.0.attn.pattern", "P", plain)))
    assert [table.about for table in tables] == ["attention pattern, h = 0", "attention pattern, h = 1"]


def test_the_last_position_of_several_prompts_is_one_table() -> None:
    cells = [(f"b={b},t=1,c={c}", f"{b},1,{c}") for b in range(3) for c in range(2)]
    (table,) = lay_out_given(make_matrix("blocks.0.attn_out", "O", cells))
    assert isinstance(table, NumberTable)
    assert table.about == "attention output, t = 1 (B)"
    assert table.rows == (("0", ("0", "1")), ("1", ("2", "3")), ("2", ("4", "5")))


@pytest.mark.parametrize(
    "cells",
    [
        [("t=0,s=0", "0,0"), ("t=1,s=0", "1,0"), ("t=1,s=1", "1,1")],
        [("t=1,s=0", "1,0"), ("t=1,s=1", "1,1")],
        [(f"t={t},c={c}", f"{t},{c}") for t in range(2) for c in range(9)],
    ],
    ids=["a cell is missing", "one row", "too wide"],
)
def test_anything_else_is_a_list(cells: list[tuple[str, str]]) -> None:
    (block,) = lay_out_given(make_matrix("x", "X", cells))
    assert isinstance(block, NumberList) and len(block.items) == len(cells)


def test_a_table_that_paper_has_no_room_for_is_a_list() -> None:
    cells = [(f"t={t},c={c}", f"{t},{c}") for t in range(2) for c in range(8)]
    narrow = make_matrix("x", "X", cells)
    long = {key: dataclasses.replace(given, text="-0.778794") for key, given in narrow.given.items()}
    assert isinstance(next(lay_out_given(narrow)), NumberTable)
    assert isinstance(next(lay_out_given(dataclasses.replace(narrow, given=long))), NumberList)


def test_every_given_number_but_a_remainder_is_listed_once() -> None:
    texts = [
        text
        for block in lay_out_given(SHEET)
        for text in (
            [text for _, row in block.rows for text in row]
            if isinstance(block, NumberTable)
            else [text for _, text in block.items]
        )
    ]
    assert sorted(texts) == sorted(given.text for key, given in SHEET.given.items() if "~" not in key)


def test_a_step_has_its_boxes_with_their_numbers_and_the_check_that_they_complete() -> None:
    pattern, z, nll = lay_out_steps(SHEET)
    assert [line.number for line in pattern.lines] == [1, 2, 3, 4, 5] and pattern.phase == "Forward pass"
    assert pattern.checks == ("P[1,0] + P[1,1] = 1",) and not z.checks and not nll.checks
    assert pattern.asked == "4 decimals"
    assert not any(line.answer for line in pattern.lines)


def test_symbols_say_which_terms_are_asked_where_the_formula_does_not() -> None:
    pattern, z, _ = lay_out_steps(SHEET)
    assert [line.work for line in pattern.lines] == ["e^S[1,0]", "e^S[1,1]", "E[1,0] + E[1,1]", "", ""]
    assert z.lines[0].work.startswith("P[1,0] · V[0,0] + P[1,1] · V[1,0] + 0.012 [rest of Z[1,0]]")


def test_a_shown_box_has_its_number_and_its_arithmetic() -> None:
    boxes = [dataclasses.replace(box, shown="1.6487") if i == 0 else box for i, box in enumerate(SHEET.boxes)]
    pattern, *_ = lay_out_steps(dataclasses.replace(SHEET, boxes=tuple(boxes)))
    assert (pattern.lines[0].work, pattern.lines[0].answer) == ("e^0.5", "1.6487")
    assert not pattern.lines[1].answer


def test_every_line_of_a_key_can_be_recomputed_from_what_stands_on_it() -> None:
    """1.6487 + 3.4903 is 5.1390, while the sum is 5.1391: the line then has one more digit."""
    pattern, *_ = lay_out_steps(SHEET, key=True)
    total = pattern.lines[2]
    assert total.answer == "5.1391"
    assert f"{sum(map(float, total.work.split(' + '))):.4f}" == total.answer
    share = pattern.lines[3].work.split(" / ")
    assert f"{float(share[0]) / float(share[1]):.4f}" == pattern.lines[3].answer == "0.3208"


def test_what_was_run_is_described_on_one_line_each() -> None:
    source = {
        "model": "abcd",
        "prompts": ["A\nB\x1b"],
        "targets": [" C"],
        "update": {"rule": "sgd", "lr": 1.0},
    }
    rows = describe_run(dataclasses.replace(SHEET, source=source))
    assert rows == [("model", "abcd"), ("prompt", "A B\\x1b → ·C"), ("update", "rule sgd, lr 1.0")]


def test_a_position_with_another_token_in_each_row_of_a_batch_has_no_token() -> None:
    cells = [(f"b={b},t=1", f"{b},1") for b in range(2)]
    sheet = dataclasses.replace(make_matrix("x", "X", cells), labels={"b": ("A B", "A A"), "t": ("A", "B|A")})
    (block,) = lay_out_given(sheet)
    assert "B|A" not in block.about and "0 (A B), 1 (A A)" in block.about


def test_a_sheet_without_boxes_has_no_steps() -> None:
    assert list(lay_out_steps(Sheet("Nothing", (), {}))) == []


def test_a_copy_has_no_arithmetic() -> None:
    box = Box("b", "B", "", "b", "copy", "fwd", "", "a", 2)
    (section,) = lay_out_steps(Sheet("", (box,), {"a": Given("1.5", True, "A")}), key=True)
    assert (section.lines[0].work, section.lines[0].answer) == ("", "1.50")


def test_a_negative_number_is_in_parentheses_where_it_needs_them() -> None:
    rule = RuleCall("multiply", ("a", "a"))
    box = Box("b", "B", "", "b", "multiply", "fwd", "", rule, 2)
    (section,) = lay_out_steps(Sheet("", (box,), {"a": Given("-1.5", True, "A")}), key=True)
    assert section.lines[0].work == "-1.5 · (-1.5)"


def test_two_values_of_one_kind_have_their_names() -> None:
    names = [f"blocks.{layer}.attn.q_proj.weight" for layer in range(2)]
    sheets = [make_matrix(name, "W_Q", [("out=0,in=0", "0,0"), ("out=0,in=1", "1,0")]) for name in names]
    both = dataclasses.replace(sheets[0], given={**sheets[0].given, **sheets[1].given})
    assert [block.about for block in lay_out_given(both)] == [
        f"query projection weight, {name}" for name in names
    ]


def test_a_symbol_that_is_not_on_the_sheet_is_explained_by_an_example() -> None:
    box = Box(
        "q[t=1]",
        "Q[1]",
        "queries",
        "q",
        "einsum",
        "fwd",
        "Q[t] = X_E[t] W_Q",
        RuleCall("multiply", ("e", "w")),
        2,
    )
    sheet = Sheet("", (box,), {"e": Given("2", True, "E[B]"), "w": Given("3", True, "W_Q")})
    (section,) = lay_out_steps(sheet)
    assert section.example == "Q[1] = E[B] · W_Q"
    known = dataclasses.replace(sheet, boxes=(dataclasses.replace(box, formula="Q[t] = E[v] W_Q"),))
    assert not next(lay_out_steps(known)).example


def test_an_exact_answer_has_no_zeros_at_its_end() -> None:
    box = Box("b", "B", "", "b", "add", "fwd", "", RuleCall("add", ("a", "a")), 4, exact=True)
    (section,) = lay_out_steps(Sheet("", (box,), {"a": Given("1.25", True, "A")}), key=True)
    assert section.lines[0].answer == "2.5" and section.asked == "exact"


def test_boxes_of_a_step_that_ask_other_decimals_are_listed() -> None:
    boxes = [dataclasses.replace(box, decimals=3 if i < 3 else 4) for i, box in enumerate(SHEET.boxes)]
    pattern, *_ = lay_out_steps(dataclasses.replace(SHEET, boxes=tuple(boxes)))
    assert pattern.asked == "3 decimals in (1) to (3), 4 decimals in (4) to (5)"


def test_arithmetic_that_is_shown_does_not_tell_what_is_asked() -> None:
    shown = [dataclasses.replace(box, shown=box.format(SHEET.key[box.key])) for box in SHEET.boxes]
    opened = dataclasses.replace(SHEET, boxes=(SHEET.boxes[0], *shown[1:]))
    reader = next(box for box in SHEET.boxes if SHEET.boxes[0].key in find_keys(box.rule))
    lines = {line.symbol: line for step in lay_out_steps(opened) for line in step.lines}
    assert SHEET.boxes[0].symbol in lines[reader.symbol].work
