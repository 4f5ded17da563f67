"""Tokens colored by surprisal: the borders of the legend, and no text as markup."""

from pellucid.report.surprisal import (
    SURPRISAL_LEVELS,
    TOKEN_STYLE,
    compute_level,
    draw_legend,
    draw_token,
)


def test_colors_begin_where_the_legend_says() -> None:
    assert [compute_level(level) for level in SURPRISAL_LEVELS] == [1, 2, 3, 4, 5, 6]
    assert compute_level(0) == 0
    words = "".join(draw_legend())
    assert all(f"{level:g}" in words for level in SURPRISAL_LEVELS)


def test_every_color_has_a_style_in_light_and_dark() -> None:
    style = TOKEN_STYLE
    for level in range(len(SURPRISAL_LEVELS) + 1):
        assert f".s{level} {{" in style
        assert style.count(f"--s{level}:") == (1 if level == 0 else 2)


def test_a_token_is_text_and_never_markup() -> None:
    drawn = draw_token("<b>·\\n", 3.0, ' title="x"')
    assert drawn == '<span class="t s4" title="x">&lt;b&gt;<i>·</i><i>\\n</i></span><br>'
    assert draw_token("", None) == '<span class="t">(empty)</span>'
