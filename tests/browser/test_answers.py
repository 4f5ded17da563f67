"""An answer of a served model opens in a browser; a page of another origin gets nothing from the server."""

import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.driver import Visitor, go, wait_until_drawn
from tests.server.served import Served, run_served, save_model

ATTACK = """
async (origin) => {
  const body = '{"prompt": "ab", "max_tokens": 4}';
  const json = { "Content-Type": "application/json" };
  const attempts = [
    ["/v1/models", {}],
    ["/api/session", {}],
    ["/metrics", { mode: "no-cors" }],
    ["/v1/completions", { method: "POST", headers: json, body }],
    ["/v1/completions", { method: "POST", mode: "no-cors", body }],
    ["/api/run", { method: "POST", mode: "no-cors", body }],
  ];
  const found = [];
  for (const [path, options] of attempts) {
    try {
      const response = await fetch(origin + path, options);
      found.push(`${path}: ${response.status} ${response.type} ${await response.text()}`);
    } catch {
      found.push("blocked");
    }
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a key: a page of another origin is kept out by nothing else."""
    with run_served(save_model(tmp_path_factory.mktemp("served") / "model"), key=None) as running:
        yield running


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """The address of an empty page on another port."""
    (tmp_path / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_an_explained_answer_opens_with_its_tokens_and_their_probabilities(
    visit: Callable[..., Visitor], answering: Served
) -> None:
    asked = {"prompt": "the cat", "max_tokens": 6, "seed": 1, "logprobs": 0, "explain": True}
    [choice] = answering.post("/v1/completions", **asked)["choices"]
    hash = f"#trace/{choice['explain']['trace']}"
    visitor = visit()
    page = visitor.open(f"http://127.0.0.1:{answering.port}/explore{hash}")
    wait_until_drawn(page, hash)
    shown = page.eval_on_selector_all(
        "table.targets tbody td .number", "numbers => numbers.map((number) => number.textContent)"
    )
    wanted = [math.exp(logprob) for logprob in choice["logprobs"]["token_logprobs"]]
    assert [float(text) for text in shown[: len(wanted)]] == pytest.approx(wanted, rel=1e-4)
    ids = [int(text.split("·")[1]) for text in page.locator(".chips .place").all_inner_texts()]
    new = [token["id"] for token in choice["explain"]["tokens"]]
    assert ids[-len(new) + 1 :] == new[:-1]
    go(page, "#read")
    go(page, hash)
    assert page.locator("table.targets").count() == 1


def test_an_answer_that_is_not_kept_is_a_message(visit: Callable[..., Visitor], answering: Served) -> None:
    visitor = visit()
    visitor.expected = ("404",)
    page = visitor.open(f"http://127.0.0.1:{answering.port}/explore#trace/tr_nothing")
    page.wait_for_selector(".failure")
    assert "no longer kept" in page.inner_text(".failure")


def test_a_page_of_another_origin_gets_nothing_and_starts_nothing(
    browser: Any, answering: Served, elsewhere: str
) -> None:
    def count_tokens() -> list[bytes]:
        lines = answering.ask("GET", "/metrics").body.splitlines()
        return [line for line in lines if line.startswith((b"pellucid_prompt_tokens", b"pellucid_comp"))]

    before = count_tokens()
    context = browser.new_context()
    try:
        page = context.new_page()
        for address in (elsewhere, elsewhere.replace("127.0.0.1", "localhost"), "data:text/html,<p>"):
            page.goto(address)
            found = page.evaluate(ATTACK, f"http://127.0.0.1:{answering.port}")
            assert found == ["blocked"] * 6, address
    finally:
        context.close()
    assert count_tokens() == before
