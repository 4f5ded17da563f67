"""No text that comes from outside is ever run, loaded or obeyed: it is only shown."""

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route

import pellucid
from pellucid.explanation.tracing import write_trace
from tests.browser import served
from tests.browser.driver import Visitor, go, wait_until_drawn, walk, why
from tests.browser.hostile import RUN, STRINGS
from tests.browser.models import LLAMA, write_model
from tests.browser.served import Served

GOLDEN_RUN = Path(__file__).parents[1] / "golden" / "run-2"
SCREENS = ["#read", "#why", "#map", "#map/logits", "#attention/1/1"]
TEXTS = {
    "axes", "command", "config", "formula", "label", "meaning", "message", "model", "note", "op", "phase",
    "presets", "remedy", "sentence", "symbol", "target", "what", "why_not",
}  # fmt: skip
"""Keys of the answers whose texts are shown and mean nothing to the page."""
HASHES = [
    f"#{STRINGS[0]}",
    "#__proto__",
    "#constructor/x",
    "#read/-1",
    "#map/__proto__",
    "#attention/9/-1",
    "#%",
    "#trace/t9",
]


def check_harmless(page: Page) -> None:
    assert page.evaluate("typeof window.__pwned") == "undefined"
    assert page.evaluate("Object.keys(Object.prototype).length") == 0
    assert page.evaluate("document.scripts.length") <= 2
    assert page.locator("main img, main iframe, main object, main script, main style, main link").count() == 0
    assert page.inner_text("main").strip()


@pytest.fixture(scope="package")
def hostile_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose words are hostile, in a file with a hostile name."""
    name = f"<img src=x onerror={RUN}>‮gnp.toml"
    config = LLAMA | {"context_length": 2 * len(STRINGS)}
    return write_model(tmp_path_factory.mktemp("hostile") / name, config, STRINGS)


def test_hostile_tokens_in_a_model_with_a_hostile_name_are_only_shown(
    visit: Callable[..., Visitor], serve: Callable[..., Served], hostile_model: Path
) -> None:
    """Every string is a token of the prompt, of the tables and of the suggestions."""
    visitor = visit()
    page = visitor.explore(serve(str(hostile_model), " ".join(STRINGS)))
    for screen in SCREENS:
        go(page, screen)
        check_harmless(page)
    assert "<img" in page.inner_text("header")
    assert "\u202e" not in page.inner_text("body")
    texts = page.inner_text("header")
    assert all(text in texts for text in ("<svg/onload", "__proto__", "</script>", "\\u202egnp"))


def test_hostile_names_of_a_run_and_of_a_trace_are_only_shown(
    visit: Callable[..., Visitor], hostile_model: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(GOLDEN_RUN, tmp_path / f"<svg onload={RUN}>")
    trace = tmp_path / f"<script>{RUN}<&.json"
    model = pellucid.load(str(hostile_model))
    write_trace(model, model.trace(" ".join(STRINGS[:9])), trace)
    for arguments in ([str(run), "abc>"], [str(trace)]):
        server = served.start(*arguments)
        try:
            visitor = visit()
            page = visitor.explore(server)
            for screen in SCREENS:
                go(page, screen)
                check_harmless(page)
        finally:
            server.stop()


def test_a_hostile_prompt_or_address_is_refused_with_a_message(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    visitor = visit()
    visitor.expected = ("Failed to load resource",)
    page = visitor.explore(serve("abcd", "A B"))
    for failure, numbers in walk(page, [why(text) for text in STRINGS]):
        assert failure or numbers
    check_harmless(page)
    walk(page, HASHES)
    check_harmless(page)
    go(page, "#read")
    for text in (*STRINGS[:3], "\ud800", "\0", "A" * 70_000):
        page.fill("#prompt", text)
        page.press("#prompt", "Control+Enter")
        page.wait_for_selector("#run .error")
        check_harmless(page)
        go(page, "#map")
        go(page, "#read")


def spoil(data: Any, texts: Iterator[str]) -> Any:
    """Returns an answer in which each shown text is the next hostile one."""
    if isinstance(data, list):
        return [spoil(item, texts) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        key: _replace(value, texts) if key in TEXTS else spoil(value, texts) for key, value in data.items()
    }


def _replace(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(texts)
    return [_replace(item, texts) for item in value] if isinstance(value, list) else spoil(value, texts)


def visit_with_spoiled_answers(visitor: Visitor, server: Served, first: int) -> None:
    """Visits every screen while each text of each answer is hostile; `first` is the first of the strings."""
    texts = (STRINGS[i % len(STRINGS)] for i in count(first))

    def change(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps(spoil(answer.json(), texts)))

    visitor.expected = ("Failed to load resource",)
    visitor.page.route("**/api/**", change)
    page = visitor.explore(server)
    for screen in (*SCREENS, why("blocks.0.attn.pattern[t=1,s=0]")):
        go(page, screen)
        check_harmless(page)
    page.keyboard.press("/")
    page.keyboard.type("pro")
    page.wait_for_selector("#suggestions [role=option]")
    check_harmless(page)


@pytest.mark.rotating
@pytest.mark.parametrize("first", [0, 32])
def test_hostile_texts_in_every_answer_are_only_shown(
    visit: Callable[..., Visitor], serve: Callable[..., Served], first: int
) -> None:
    visit_with_spoiled_answers(visit(), serve("abcd", "A B"), first)


@pytest.mark.torture
@pytest.mark.parametrize("first", range(len(STRINGS)))
def test_every_hostile_text_in_every_place_is_only_shown(
    visit: Callable[..., Visitor], serve: Callable[..., Served], first: int
) -> None:
    visit_with_spoiled_answers(visit(), serve("abcd", "A B"), first)


def test_an_exported_page_with_hostile_texts_is_harmless(
    visit: Callable[..., Visitor], hostile_model: Path, tmp_path: Path
) -> None:
    file = served.export(
        tmp_path / f"<img src=x onerror={RUN}>.html", str(hostile_model), " ".join(STRINGS), "--size", "1MB"
    )
    text = file.read_text("utf-8").lower()
    assert text.count("</script") == 2, "the answers and the modules"
    assert "<!--" not in text
    visitor = visit(offline=True)
    page = visitor.open(file.as_uri())
    wait_until_drawn(page)
    for screen in SCREENS:
        go(page, screen)
        check_harmless(page)
    assert all(url.startswith(("file:", "data:")) for url in visitor.requests)


def test_the_tests_above_would_notice_a_script_that_runs(
    visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    """The same checks on a page that parses such a text."""
    file = tmp_path / "careless.html"
    file.write_text(
        "<main>x</main><script>document.querySelector('main').innerHTML = \"" + STRINGS[3] + '"</script>'
    )
    visitor = visit()
    visitor.expected = ("ERR_FILE_NOT_FOUND",)
    page = visitor.open(file.as_uri())
    with pytest.raises(AssertionError):
        check_harmless(page)
