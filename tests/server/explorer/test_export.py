"""A trace as one file: every answer under its question, within a size, the same bytes each time."""

import html
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import AddressError, FileError, UsageError
from pellucid.explanation.trace import Trace
from pellucid.reference.training import forward
from pellucid.server.explorer import export
from pellucid.server.explorer.bundle import make_document
from pellucid.server.explorer.export import PAGE, TracePage, compute_checksum, write_html, write_page
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session
from tests.reference.models import CONFIGS, IDS, weights

WHOLE = RunRequest("A B", target="C", update="sgd", lr=1.0)


def read_answers(html: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(html.partition('id="answers">')[2].partition("</script>")[0])
    return answers


@pytest.fixture(scope="module")
def whole() -> tuple[Session, str]:
    session = Session.open("abcd")
    return session, write_html(session, session.run(WHOLE))


def test_every_cell_of_a_small_run_with_its_update_is_in_a_page_below_a_megabyte(
    whole: tuple[Session, str],
) -> None:
    session, html = whole
    trace, answers = session.get_trace(None).trace, read_answers(html)
    asked = {unquote(key.partition("at=")[2].partition("&")[0]) for key in answers if key[:5] == "cell?"}
    cells = {
        trace.address(name, index)
        for name, value in trace.tape.values.items()
        for index in np.ndindex(value.shape)
    }
    assert asked >= cells
    assert len(html.encode()) <= 1_000_000


def test_an_embedded_answer_is_the_answer(whole: tuple[Session, str]) -> None:
    session, html = whole
    answers = read_answers(html)
    for key in list(answers)[::40]:
        question, _, text = key.partition("?")
        given = dict(pair.split("=") for pair in text.split("&")) if text else {}
        if question != "session":
            from pellucid.server.explorer.question import ask

            assert ask(session, question, {k: unquote(v) for k, v in given.items()}, True) == answers[key]


def test_the_same_run_gives_the_same_bytes(whole: tuple[Session, str]) -> None:
    session = Session.open("abcd")
    assert write_html(session, session.run(WHOLE)) == whole[1]


def test_a_page_keeps_to_its_size_and_follows_the_address_first() -> None:
    session = Session.open("abcd")
    frame = len(make_document({}, "").encode())
    at = "blocks.0.attn.scores[t=1,s=0]"
    html = write_html(session, session.run(RunRequest("A B")), at=at, size=frame + 40_000)
    assert frame < len(html.encode()) <= frame + 40_000
    assert any("scores" in key for key in read_answers(html) if key.startswith("cell?"))


def test_a_size_that_the_screens_alone_exceed_is_refused() -> None:
    session = Session.open("abcd")
    with pytest.raises(UsageError, match="kB"):
        write_html(session, session.run(RunRequest("A B")), size=100_000)


def test_a_path_follows_what_is_computed_down_to_the_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export._Answers, "add_reachable", lambda *_: None)
    session = Session(trace=Trace(forward(CONFIGS["llama"], weights(CONFIGS["llama"]), IDS)))
    answers = read_answers(write_html(session, session.get_trace(None)))
    likeliest = session.ask("next", count=1)["tokens"][0]["at"]
    blocks = range(CONFIGS["llama"].n_layer)
    way = [likeliest, *(f"blocks.{i}." for i in blocks), "embed.weight["]
    asked = [unquote(key.partition("at=")[2]) for key in answers if key.startswith("cell?")]
    assert all(any(at.startswith(start) for at in asked) for start in way)


def test_heads_that_do_not_fit_leave_room_for_the_paths() -> None:
    config = replace(CONFIGS["llama"], n_layer=24)
    session = Session(trace=Trace(forward(config, weights(config), IDS)))
    size = len(make_document({}, "").encode()) + 500_000
    answers = read_answers(html := write_html(session, session.get_trace(None), size=size))
    assert len(html.encode()) <= size
    kinds = Counter(key.partition("?")[0] for key in answers)
    assert kinds["heads"] == 1 and kinds["cell"] > 50 and kinds["attention"] < 24 * config.n_head


def test_a_file_is_written_once_and_replaced_with_force_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page("abcd", path, RunRequest("A B"), size=200_000)
    with pytest.raises(FileError):
        write_page("abcd", path, RunRequest("A B"), size=200_000)
    write_page("abcd", path, RunRequest("B A"), size=200_000, force=True)
    assert PAGE.why_not(path) == ""
    other = tmp_path / "mine.html"
    other.write_text("mine")
    with pytest.raises(FileError):
        write_page("abcd", other, RunRequest("A B"), force=True)
    assert other.read_text() == "mine"


def test_a_page_needs_a_prompt_and_an_address_that_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_page("abcd", tmp_path / "a.html")
    with pytest.raises(AddressError):
        write_page("abcd", tmp_path / "a.html", RunRequest("A B"), at="prbs[t=1]")
    assert not list(tmp_path.iterdir())


def test_a_trace_file_becomes_a_page(tmp_path: Path) -> None:
    model = pellucid.load("abcd")
    from pellucid.explanation.tracing import write_trace

    write_trace(model, model.trace("A B", path="eager"), tmp_path / "t.json")
    html = write_page(str(tmp_path / "t.json"), tmp_path / "t.html").read_text("utf-8")
    assert read_answers(html)["session"]["is_exported"]


def test_the_checksum_is_of_every_number() -> None:
    trace = pellucid.trace("abcd", "A B")
    before = compute_checksum(trace)
    trace.tape.values["probs"] = trace.tape.values["probs"].copy()
    assert compute_checksum(trace) == before
    trace.tape.values["probs"][0, 1, 2] = np.nextafter(trace.tape.values["probs"][0, 1, 2], 1)
    assert compute_checksum(trace) != before


def test_a_notebook_shows_a_trace_in_a_frame_without_rights() -> None:
    page = pellucid.trace("abcd", "A B").page(size=150_000)
    assert isinstance(page, TracePage) and "abcd" in repr(page)
    frame = page._repr_html_()
    assert (
        'sandbox="allow-scripts"' in frame
        and "<script" not in frame.replace("&lt;script", "").split("srcdoc")[0]
    )
    assert (
        frame.count('srcdoc="') == 1 and '"' not in frame.partition('srcdoc="')[2].partition('"></iframe>')[0]
    )


def test_a_page_adds_at_most_two_megabytes_to_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    page = pellucid.trace("abcd", "A B C", target="D", update="adamw").page()
    assert len(page.html.encode()) < 1_000_000 and len(page._repr_html_()) < 2_000_000
    large = TracePage(page.html + " " * 1_000_000, "abcd")
    assert len(large._repr_html_()) < 500 and 'page.save("trace.html")' in html.unescape(large._repr_html_())
    monkeypatch.setattr("pellucid.server.explorer.export.LARGEST_FRAME", 1000)  # the screens alone take more
    assert len(pellucid.trace("abcd", "A").page().html) > 1000
