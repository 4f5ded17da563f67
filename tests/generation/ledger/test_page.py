"""The page of a ledger: nothing from elsewhere, no text as markup, small, and every token reachable."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.ledger.page import lay_out, make_page
from pellucid.report.page import escape_text
from pellucid.report.surprisal import compute_level
from tests.generation.small_ledgers import make_beam_ledger, make_small_ledger, make_speculative_ledger

LEDGERS = [make_small_ledger(), make_small_ledger(3, 2), make_beam_ledger(), make_speculative_ledger()]


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text of its body."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inner: dict[str, list[str]] = {"style": [], "script": []}
        self.now = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.now = tag

    def handle_endtag(self, tag: str) -> None:
        self.now = ""

    def handle_data(self, data: str) -> None:
        if self.now in self.inner:
            self.inner[self.now].append(data)


def read_data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("ledger", LEDGERS, ids=["one", "two", "beams", "speculative"])
def test_a_page_asks_nothing_of_the_network(ledger: Ledger) -> None:
    page = make_page(ledger)
    assert not re.search(r"https?:|//|@import|url\(", page.replace("// ", ""))
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in Tags(page).tags}
    assert "{{" not in page


def test_its_policy_allows_its_own_style_and_script_alone() -> None:
    found = Tags(make_page(make_small_ledger()))
    [policy] = [
        attrs["content"] or ""
        for tag, attrs in found.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    for text in ("".join(found.inner["style"]), found.inner["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert not [tag for tag, attrs in found.tags if "style" in attrs]  # the policy would refuse them
    assert not [tag for tag, attrs in found.tags if any(name.startswith("on") for name in attrs)]


def test_every_token_can_be_selected_and_is_labelled() -> None:
    ledger = make_small_ledger(4, 2)
    options = [attrs for _, attrs in Tags(make_page(ledger)).tags if attrs.get("role") == "option"]
    assert [one["data-at"] for one in options] == [
        f"{choice} {step}" for choice in (0, 1) for step in range(4)
    ]
    entry = ledger.completions[0].entries[0]
    assert options[0]["aria-label"] == f"token 1: </script>, surprisal {entry.surprisal:.2f} nats"
    assert options[0]["class"] == f"t s{compute_level(entry.surprisal)}"


def test_text_of_tokens_and_files_is_never_markup() -> None:
    ledger = make_small_ledger()
    hostile = '</script><img src=x onerror=alert(1)>"\u202e\x00'
    ledger = replace(
        ledger,
        texts=dict.fromkeys(ledger.texts, hostile),
        model=replace(ledger.model, name=hostile, path=hostile),
        sources={"temperature": hostile},
        versions=replace(ledger.versions, machine=hostile),
    )
    page = make_page(ledger, hostile)
    plain = {tag for tag, _ in Tags(make_page(make_small_ledger())).tags}
    assert {tag for tag, _ in Tags(page).tags} <= plain
    assert "\u202e" not in page and "\x00" not in page
    assert read_data(page)["texts"][0].startswith("</script><img")


def test_the_data_are_those_of_the_entries() -> None:
    ledger = make_small_ledger()
    data = read_data(make_page(ledger))
    for token, entry in zip(data["choices"][0], ledger.completions[0].entries, strict=True):
        assert (token["id"], token["u"], token["kept"]) == (entry.id, entry.u, entry.kept)
        texts = [data["texts"][one[0]] for one in token["candidates"]]
        assert texts == [ledger.texts[one.id] for one in entry.candidates]
        assert token["removed"][0][:2] == [1, 3]


def test_five_hundred_tokens_are_less_than_a_megabyte() -> None:
    assert len(make_page(make_small_ledger(500)).encode()) < 600_000


def test_accepted_and_replaced_proposals_are_marked() -> None:
    options = [attrs for _, attrs in Tags(make_page(make_speculative_ledger())).tags if "data-at" in attrs]
    assert [(one["class"] or "").split()[2:] for one in options] == [[], ["ok"], ["ok"], ["no"], [], []]


def test_a_parent_is_in_the_middle_of_its_children() -> None:
    ledger = make_beam_ledger()
    places = lay_out(ledger.beams, list(range(6)))
    assert places == {0: (0, 0.5), 1: (0, 2), 2: (0, 3), 3: (1, 0), 4: (1, 2), 5: (1, 1)}
    assert make_page(ledger).count("<circle") == 6


def test_a_page_replaces_pages_of_ledgers_alone(tmp_path: Path) -> None:
    ledger, path = make_small_ledger(), tmp_path / "a.html"
    ledger.save(path)
    ledger.save(path, force=True)
    path.write_text("<p>mine")
    with pytest.raises(FileError):
        ledger.save(path, force=True)
    with pytest.raises(FileError):
        Ledger.check_output(path)


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    assert "srcdoc=" in make_small_ledger()._repr_html_()


def test_a_page_names_no_folder_of_its_maker() -> None:
    ledger = replace(LEDGERS[0], model=replace(LEDGERS[0].model, path="/home/ann/a b.gguf", name="a b.gguf"))
    page = make_page(ledger)
    assert "ann" not in page and escape_text("--model 'a b.gguf'") in page
