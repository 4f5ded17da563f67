"""A view in a terminal has its formula, its tables as wide as the window, and its plots."""

from pellucid.report.items import ViewTable
from pellucid.report.terminal import MOST_ROWS, format_table, format_view
from tests.report.full_view import FULL


def test_everything_of_a_view_is_printed_within_the_width() -> None:
    lines = list(format_view(FULL, 60))
    assert lines[:3] == ["Attention of <b>", "  H[h,t] = −Σ_s P ln P", "  from blocks.L.attn.pattern"]
    assert "0.1   ·a<b    0.1235" in lines and "1.0            1e-09" in lines
    assert max(map(len, lines)) <= 60
    assert lines[-1] == "A note."


def test_rows_and_columns_that_do_not_fit_are_counted() -> None:
    table = ViewTable("", ("a", "long column", "another long column"), [(1, 2.0, 3.0)] * (MOST_ROWS + 5))
    lines = list(format_table(table, 20))
    assert lines[-2:] == ["… 1 more column: another long column", "… 5 more rows"]


def test_a_control_character_of_a_token_is_shown_and_not_sent() -> None:
    assert "\x1b" not in "".join(format_table(ViewTable("", ("token",), [("\x1b[2J",)])))
