"""The table and the figure of compared tokenizers: within the terminal, every number from the comparison."""

import pytest

from pellucid.base.columns import display_width
from pellucid.config.cost import cost_of_unembedding
from pellucid.evaluation.tokenizers.compare import TokenizerComparison, TokenizerUse
from pellucid.evaluation.tokenizers.counts import count_tokens
from pellucid.evaluation.tokenizers.report import draw_comparison
from pellucid.report.svg import write_svg
from pellucid.text.kinds import train
from pellucid.text.word_level import WordTokenizer

TEXT = "the cat sat on 12 mats, привет"


def make_comparison(count: int) -> TokenizerComparison:
    uses = []
    for i in range(count):
        tokenizer = WordTokenizer(("<unk>", "the"), unknown="<unk>") if i == 1 else train("bytes", [])
        counts = count_tokens(tokenizer, TEXT)
        cost = cost_of_unembedding(tokenizer.vocab_size, 8)
        name = f"a/long/name/of/a/folder/with/tokenizer-{i}"
        uses.append(
            TokenizerUse(name, tokenizer.kind, tokenizer.vocab_size, {"a": counts, "b": counts}, cost, False)
        )
    return TokenizerComparison(uses)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_no_line_is_wider_than_the_terminal_and_every_tokenizer_has_a_column(width: int, count: int) -> None:
    lines = make_comparison(count).report().to_text(width).splitlines()
    assert max(map(display_width, lines)) <= width
    assert all(any(f"er-{i}" in line for line in lines) for i in range(count))


def test_the_rows_have_the_numbers() -> None:
    text = make_comparison(2).report().to_text(100)
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["vocabulary"][-2:] == ["258", "2"]
    assert lines["tokens"][-2:] == [str(2 * len(TEXT.encode())), "14"]
    assert lines["unknown tokens"][-2:] == ["0", "12"]
    assert lines["documents decoded exactly"][-3:] == ["2", "2", "0"]


def test_the_figure_omits_a_script_that_no_token_of_one_covers() -> None:
    figure = draw_comparison(make_comparison(2))
    assert "white space" in figure.note
    assert "Cyrillic" in figure.alt and "white space" not in figure.alt
    assert b"MFLOP" in write_svg(figure)
