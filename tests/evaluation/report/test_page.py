"""The page of an evaluation: nothing from elsewhere, no script, no text as markup, and of bounded size."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.evaluation.report.page import (
    FRAME_BYTES,
    MODEL_BYTES,
    check_page_output,
    describe_token,
    make_page,
    write_page,
)
from pellucid.report.surprisal import compute_level
from tests.evaluation.report.small_evaluations import make_evaluation, make_model
from tests.generation.ledger.test_page import Tags

HOSTILE = '</script><img src=x onerror=alert(1)>"\u202e\x00'


def test_a_page_asks_nothing_of_the_network_and_needs_no_script() -> None:
    page = make_page(make_evaluation(make_model("a", sources=2), make_model("b")))
    named = page.replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, which is never fetched
    assert not re.search(r"https?:|@import|url\((?!#plot)", named)
    tags = {tag for tag, _ in Tags(page).tags}
    assert not {"link", "img", "iframe", "object", "base", "script"} & tags
    assert "{{" not in page


def test_its_policy_allows_its_own_style_alone() -> None:
    found = Tags(make_page(make_evaluation(make_model("a"))))
    [policy] = [attrs["content"] or "" for _, attrs in found.tags if "http-equiv" in attrs]
    digest = base64.b64encode(hashlib.sha256("".join(found.inner["style"]).encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert not [tag for tag, attrs in found.tags if "style" in attrs]  # the policy would refuse them


def test_every_token_of_a_passage_has_its_color_and_its_numbers() -> None:
    evaluation = make_evaluation(make_model("a"))
    tokens = [attrs for _, attrs in Tags(make_page(evaluation)).tags if "data-tip" in attrs]
    assert len(tokens) == 10 * 48
    assert tokens[1]["data-tip"] == describe_token("·cat", 9.5, 1)
    assert tokens[1]["class"] == f"t s{compute_level(9.5)}"
    assert tokens[-1]["class"] == "t s0"


def test_text_of_tokens_names_and_files_is_never_markup() -> None:
    plain = {tag for tag, _ in Tags(make_page(make_evaluation(make_model("a", sources=2)))).tags}
    page = make_page(make_evaluation(make_model(HOSTILE, tokenizer=HOSTILE, text=HOSTILE, sources=2)))
    assert {tag for tag, _ in Tags(page).tags} <= plain
    assert "\u202e" not in page and "\x00" not in page


@pytest.mark.parametrize("count", [1, 2])
def test_a_page_is_not_larger_than_it_says(count: int) -> None:
    models = [
        make_model("&" * 10_000, documents=3000, tokenizer="<" * 10_000, text="\x01" * 1000, sources=200)
        for _ in range(count)
    ]
    assert len(make_page(make_evaluation(*models)).encode()) <= FRAME_BYTES + count * MODEL_BYTES


def test_a_page_replaces_pages_of_evaluations_alone(tmp_path: Path) -> None:
    evaluation, path = make_evaluation(make_model("a")), tmp_path / "a.html"
    write_page(evaluation, path)
    with pytest.raises(FileError):
        check_page_output(path)
    write_page(evaluation, path, force=True)
    path.write_text("<p>mine")
    with pytest.raises(FileError):
        check_page_output(path, force=True)
