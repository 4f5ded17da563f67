"""An evaluation as text is never wider than the terminal; its page has nothing from elsewhere, no script, no
text as markup, and a bounded size."""

import base64
import hashlib
import re

import pytest

from pellucid.base.columns import display_width
from pellucid.evaluation.report import FRAME_BYTES, MODEL_BYTES, describe_token
from pellucid.report.surprisal import compute_level
from tests.evaluation.small_evaluations import make_evaluation, make_model
from tests.generation.ledger.test_page import Tags

HOSTILE = '</script><img src=x onerror=alert(1)>"\u202e\x00'


def test_a_page_asks_nothing_of_the_network_and_needs_no_script() -> None:
    page = make_evaluation(make_model("a", sources=2), make_model("b")).report().to_html()
    named = page.replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, which is never fetched
    assert not re.search(r"https?:|@import|url\((?!#plot)", named)
    tags = {tag for tag, _ in Tags(page).tags}
    assert not {"link", "img", "iframe", "object", "base", "script"} & tags
    assert "{{" not in page


def test_its_policy_allows_its_own_style_alone() -> None:
    found = Tags(make_evaluation(make_model("a")).report().to_html())
    [policy] = [attrs["content"] or "" for _, attrs in found.tags if "http-equiv" in attrs]
    digest = base64.b64encode(hashlib.sha256("".join(found.inner["style"]).encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert not [tag for tag, attrs in found.tags if "style" in attrs]  # the policy would refuse them


def test_every_token_of_a_passage_has_its_color_and_its_numbers() -> None:
    evaluation = make_evaluation(make_model("a"))
    tokens = [attrs for _, attrs in Tags(evaluation.report().to_html()).tags if "data-tip" in attrs]
    assert len(tokens) == 10 * 48
    assert tokens[1]["data-tip"] == describe_token("·cat", 9.5, 1)
    assert tokens[1]["class"] == f"t s{compute_level(9.5)}"
    assert tokens[-1]["class"] == "t s0"


def test_text_of_tokens_names_and_files_is_never_markup() -> None:
    plain = {tag for tag, _ in Tags(make_evaluation(make_model("a", sources=2)).report().to_html()).tags}
    page = make_evaluation(make_model(HOSTILE, tokenizer=HOSTILE, text=HOSTILE, sources=2)).report().to_html()
    assert {tag for tag, _ in Tags(page).tags} <= plain
    assert "\u202e" not in page and "\x00" not in page


@pytest.mark.parametrize("count", [1, 2])
def test_a_page_is_not_larger_than_it_says(count: int) -> None:
    models = [
        make_model("&" * 10_000, documents=3000, tokenizer="<" * 10_000, text="\x01" * 1000, sources=200)
        for _ in range(count)
    ]
    assert len(make_evaluation(*models).report().to_html().encode()) <= FRAME_BYTES + count * MODEL_BYTES


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(count: int, width: int) -> None:
    models = [make_model(f"runs/a/long/name/of/a/model-{i}", 2 + i, sources=3) for i in range(count)]
    lines = make_evaluation(*models).report().to_text(width).splitlines()
    assert max(map(display_width, lines)) <= width
    for i in range(count):
        assert any(f"del-{i}" in line for line in lines)
        assert sum(f"{2 + i}.0000 ±0.0125" in line for line in lines) >= 1


def test_the_baselines_stand_below_the_loss_and_the_notes_at_the_end() -> None:
    evaluation = make_evaluation(make_model("a"))
    lines = str(evaluation).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("loss"))
    assert [line.split("  ")[1] for line in lines[first + 1 : first + 6]] == [
        "entropy floor",
        "above the floor",
        "bigram baseline",
        "unigram baseline",
        "uniform, ln V",
    ]
    joined = " ".join(lines)
    assert all(note in joined for note in evaluation.notes())


def test_one_document_has_no_interval() -> None:
    assert "±" not in str(make_evaluation(make_model("a", documents=1)))
