"""A session holds weights once and traces within limits, and computes a dropped trace again bit for bit."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import FileError, PellucidError, ResourceError, TokenError, UsageError
from pellucid.explanation.reuse import has_same_bits
from pellucid.explanation.trace import Trace
from pellucid.explanation.trace_file import write
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest
from pellucid.server.explorer.progress import TraceProgress
from pellucid.server.explorer.session import TEXTS, CellEdit, Session

SMOLLM2 = os.environ.get("PELLUCID_SMOLLM2", "")
PROMPTS = ("A", "B", "A B", "B A", "C D", "D C", "A A", "B B", "C C", "D D")


def open_limited(most_traces: int = 8, most_bytes: int = 10**9) -> Session:
    return Session(pellucid.load("abcd"), most_traces=most_traces, most_bytes=most_bytes)


def copy_values(held: HeldTrace) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in held.trace.tape.values.items()}


def have_same_bits(tape: Tape, values: dict[str, np.ndarray]) -> bool:
    return list(tape.values) == list(values) and all(
        has_same_bits(tape.values[name], value) for name, value in values.items()
    )


# ---- weights


def test_every_trace_shares_the_weights() -> None:
    session = Session.open("abcd")
    first, second = session.run(RunRequest("A")), session.run(RunRequest("B"))
    assert session.weights is not None and session.weights.read_count == len(session.weights)
    for name, weight in session.weights.items():
        assert weight.dtype == np.float64
        assert first.trace.tape[name] is second.trace.tape[name] is weight


def test_a_held_trace_equals_that_of_the_model() -> None:
    held = Session.open("abcd").run(RunRequest("A B", "C", backward=True, update="sgd", lr=0.5, steps=2))
    wanted = pellucid.trace("abcd", "A B", target="C", update="sgd", lr=0.5, steps=2)
    assert have_same_bits(held.trace.tape, wanted.tape.values)
    assert held.trace.labels == wanted.labels and held.trace.run == wanted.run


def test_weights_beyond_the_free_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.explorer.weights.get_free_memory", lambda: 100)
    with pytest.raises(ResourceError, match="224 B"):
        Session.open("abcd")


# ---- limits


def test_the_least_recently_used_trace_is_dropped_by_count() -> None:
    session = open_limited(most_traces=3)
    for prompt in PROMPTS[:3]:
        session.run(RunRequest(prompt))
    session.get_trace("t1")
    session.run(RunRequest("D"))
    assert set(session.traces) == {"t1", "t3", "t4"} and list(session.summaries) == ["t1", "t2", "t3", "t4"]
    assert session.must_compute("t2") and not session.must_compute("t1") and not session.must_compute("t9")


def test_the_least_recently_used_trace_is_dropped_by_bytes() -> None:
    one = open_limited()
    one.run(RunRequest("A B"))
    session = open_limited(most_bytes=3 * one.count_bytes())
    for prompt in ("A B", "B A", "C D", "D C"):
        session.run(RunRequest(prompt))
        assert session.count_bytes() <= 3 * one.count_bytes()
    assert set(session.traces) == {"t2", "t3", "t4"}


def test_bytes_that_traces_share_count_once() -> None:
    session = open_limited()
    held = session.run(RunRequest("A B"))
    alone = session.count_bytes()
    own = sum(v.nbytes for n, v in held.trace.tape.values.items() if held.trace.tape.roles[n] != "param")
    assert 0 < alone <= own  # a value may be a view of another
    session._hold(held.trace, held.request)
    assert session.count_bytes() == alone


@pytest.mark.parametrize(
    "request_",
    [
        RunRequest("A B"),
        RunRequest([0, 1, 2]),
        RunRequest("A B", "C", backward=True),
        RunRequest("A B", "C", update="adamw", lr=0.1, steps=2),
    ],
)
def test_a_dropped_trace_is_computed_again_bit_for_bit(request_: RunRequest) -> None:
    session = open_limited(most_traces=1)
    values = copy_values(session.run(request_))
    before = session.ask("session")["traces"][0]
    session.run(RunRequest("D"))
    assert "t1" not in session.traces and session.ask("session")["traces"][0] == before
    assert have_same_bits(session.get_trace("t1").trace.tape, values)
    assert session.newest is not None and session.newest.id == "t2" and session.must_compute(None)


def test_of_very_many_traces_the_oldest_are_forgotten_but_not_those_that_another_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pellucid.server.explorer.session.MOST_SUMMARIES", 4)
    session = open_limited(most_traces=1)
    for prompt in PROMPTS[:3]:
        session.run(RunRequest(prompt))
    edited = session.edit(session.get_trace("t2"), CellEdit("probs", (0, 0, 0), 0.5))
    for prompt in PROMPTS[3:5]:
        session.run(RunRequest(prompt))
    assert list(session.summaries) == ["t2", edited.id, "t5", "t6"]
    with pytest.raises(UsageError):
        session.get_trace("t1")
    assert session.get_unedited(session.get_trace(edited.id)).id == "t2"


def test_a_trace_of_a_file_is_never_dropped(tmp_path: Path) -> None:
    session = Session(pellucid.load("abcd"), pellucid.trace("abcd", "A"), most_traces=1)
    for prompt in PROMPTS[:3]:
        session.run(RunRequest(prompt))
    assert set(session.traces) == {"t1", "t4"}


# ---- sources


def test_a_trace_file_is_a_session_without_a_model(tmp_path: Path) -> None:
    model, path = pellucid.load("abcd"), tmp_path / "run.json"
    for settings in ({}, {"path": "eager"}):
        from pellucid.explanation.tracing import write_trace

        write_trace(model, model.trace("A B", **settings), path, force=True)  # type: ignore[arg-type]
        session = Session.open(str(path))
        found = session.ask("session")
        (trace,) = found["traces"]
        assert (found["source"], found["model"], found["parameters"]) == ("trace", "abcd", 28)
        assert (found["layers"], found["heads"], found["vocab"], found["presets"]) == (1, 1, 4, [])
        assert [token["label"] for token in trace["tokens"]] == ["A", "B"] and not trace["is_editable"]
        assert trace["path"] == settings.get("path", "reference")
        assert trace["command"] == "pellucid explain run.json --at ADDRESS"
        with pytest.raises(UsageError, match="open its model"):
            session.run(RunRequest("A"))


@pytest.mark.parametrize(
    "source", ["gpt2", "no-such-model", "", "\0", "no/such/folder", "no.gguf", "no.json", "no.toml"]
)
def test_a_source_that_cannot_be_opened_raises_one_message(source: str) -> None:
    with pytest.raises(PellucidError) as refused:
        Session.open(source)
    assert str(refused.value) and "\n" not in str(refused.value)


def test_a_run_is_its_newest_model_and_a_folder_needs_no_torch(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").touch()
    with pytest.raises(FileError, match="not saved a model"):
        Session.open(str(run))
    pellucid.load("abcd").save(run / "model")
    script = (
        "import sys; from pellucid.server.explorer.session import Session\n"
        "from pellucid.server.explorer.held_trace import RunRequest\n"
        "session = Session.open(sys.argv[1]); session.run(RunRequest('A B'))\n"
        "print(session.ask('session')['source'], session.ask('session')['presets'], 'torch' in sys.modules)"
    )
    words = [sys.executable, "-P", "-c", script, str(run)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "run ['A B'] False\n"


def test_a_damaged_trace_raises_one_message(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text('{"format": "pellucid-trace", "version": 1, "tensors": 3}')
    with pytest.raises(FileError):
        Session.open(str(path))


def test_the_numbers_are_those_of_the_weights_as_they_are_asked_for(tmp_path: Path) -> None:
    held = Session.open("abcd", weights="int8").run(RunRequest("A B"))
    logits = held.trace.tape["logits"]
    assert np.array_equal(logits, pellucid.load("abcd", weights="int8").trace("A B").tape["logits"])
    assert not np.array_equal(logits, pellucid.load("abcd").trace("A B").tape["logits"])
    write(held.trace, tmp_path / "run.json")
    for source, weights in ((str(tmp_path / "run.json"), "int8"), ("abcd", "int9")):
        with pytest.raises(UsageError, match="weights"):
            Session.open(source, weights=weights)


# ---- prompts


def test_presets_are_those_that_the_model_can_encode(tmp_path: Path) -> None:
    assert Session.open("abcd").presets == ["A B"]
    text = (Path(pellucid.__file__).parent / "config/presets/abcd.toml").read_text()
    path = tmp_path / "animals.toml"
    path.write_text(text.replace('["A", "B", "C", "D"]', '["cat", "dog", "sat", "on"]'))
    assert Session.open(str(path)).presets == ["cat dog"]
    path.write_text(text.replace('["A", "B", "C", "D"]', '["Dog", "bites", "man", "on"]'))
    assert Session.open(str(path)).presets == [TEXTS[2]]


def test_a_model_without_a_tokenizer_takes_ids() -> None:
    model = pellucid.load("abcd").replace(tokenizer=None)
    session = Session(model)
    assert session.presets == ["[0, 1]"]
    assert session.ask("run", prompt="[0, 1]") == {"trace": "t1"} and session.ask("run", ids=[0, 1])
    first, second = session.traces["t1"], session.traces["t2"]
    assert have_same_bits(first.trace.tape, copy_values(second))
    with pytest.raises(TokenError):
        session.ask("run", prompt="A B")


@pytest.mark.parametrize("prompt", ["", "A " * 17, "A " * 30_000, "E", [], [4], [-1], [0] * 17])
def test_an_absurd_prompt_gets_one_message_and_the_session_goes_on(prompt: str | list[int]) -> None:
    session = Session.open("abcd")
    with pytest.raises(PellucidError) as refused:
        session.run(RunRequest(prompt))
    assert session.failed == str(refused.value) and session.progress is None
    assert session.run(RunRequest("A")).id == "t1" and session.failed is None


def test_a_prompt_has_at_most_the_tokens_that_the_memory_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.explorer.session.MOST_RUN_BYTES", 2000)
    session = Session.open("abcd")
    most = session.most_tokens
    assert 1 < most < 16
    held = session.run(RunRequest([0] * most))
    assert (
        sum(v.nbytes for n, v in held.trace.tape.values.items() if held.trace.tape.roles[n] != "param")
        <= 2000
    )
    with pytest.raises(TokenError, match=f"at most {most} "):
        session.run(RunRequest([0] * (most + 1)))


def test_a_run_beyond_the_memory_is_refused_before_it_starts() -> None:
    session = open_limited(most_bytes=3000)
    session.run(RunRequest("A B"))
    with pytest.raises(ResourceError, match="3 kB"):
        session.run(RunRequest("A B", "C", update="adamw", steps=3))
    assert list(session.summaries) == ["t1"]


# ---- progress


def test_a_run_can_be_watched_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = Session.open("abcd"), []
    append = Tape._keep

    def keep(tape: Tape, *arguments: object) -> object:
        seen.append((session.ask("session")["busy"], len(tape.steps)))
        return append(tape, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Tape, "_keep", keep)
    held = session.run(RunRequest("A B", "C", backward=True, update="sgd"))
    runs = [busy for busy, _ in seen if busy and busy["steps"] == len(held.trace.tape.steps)]
    assert [busy["step"] for busy in runs] == list(range(1, len(held.trace.tape.steps)))
    assert list(dict.fromkeys(busy["what"] for busy in runs)) == ["forward pass", "backward pass", "update"]
    assert [token["label"] for token in runs[0]["tokens"]] == ["A", "B"] and runs[0]["seconds"] >= 0
    assert session.ask("session")["busy"] is None


def test_questions_are_answered_and_runs_wait_while_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    begun, end = threading.Event(), threading.Event()
    real = Session._trace

    def slow(*arguments: object) -> object:
        begun.set()
        assert end.wait(10)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_trace", slow)
    threads = [threading.Thread(target=session.run, args=(RunRequest(prompt),)) for prompt in ("A", "B")]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    assert session.ask("next")["vocab"] == 4
    assert session.pending in ([0], [1]) and session.ask("session")["busy"]["what"] == "reading weights"
    assert list(session.summaries) == ["t1"]
    end.set()
    for thread in threads:
        thread.join(10)
    assert list(session.summaries) == ["t1", "t2", "t3"] and not session.pending


def test_gradients_of_a_small_model_need_no_estimate() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    assert session.estimate_gradients() is None


@pytest.mark.skipif(not SMOLLM2, reason="PELLUCID_SMOLLM2 names no file")
def test_a_real_model_says_beforehand_what_gradients_take() -> None:
    session = Session.open(SMOLLM2)
    held = session.run(RunRequest(TEXTS[0]))
    assert session.presets == list(TEXTS) and 300 < session.most_tokens < 400
    said = session.estimate_gradients()
    assert said is not None and session.weights is not None
    began = time.perf_counter()
    gradients = session.run(RunRequest(TEXTS[0], " the", backward=True))
    took, before = time.perf_counter() - began, sum(held.buffers.values())
    own = sum(gradients.buffers.values()) - session.weights.bytes
    assert own == pytest.approx(said["bytes"], rel=0.01) and before - session.weights.bytes < 20_000_000
    assert said["seconds"] / 5 < took < said["seconds"] * 5


def test_a_run_that_ends_while_it_is_asked_about_has_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    session, found = Session.open("abcd"), iter([TraceProgress([1], 5), None])
    monkeypatch.setattr(Session, "progress", property(lambda _: next(found)), raising=False)
    assert session.pending == [1]


def test_the_trace_of_a_file_is_known_while_another_thread_moves_it() -> None:
    session = Session(trace=Session.open("abcd").run(RunRequest("A B")).trace)
    session.traces.clear()  # as for a moment when it becomes the most recently used
    assert session.name == "abcd" and session.sizes["parameters"] == 28
    assert [token["label"] for token in session.label_tokens([0, 1])] == ["A", "B"]


@pytest.mark.parametrize("ids", [None, True, 5, "x", [], [5], [[]], [["x"]], [[True]], [[1], 2], {"x": 1}])
def test_a_trace_whose_record_has_no_token_ids_is_opened(ids: object) -> None:
    tape = Tape()
    tape.constant("probs", [[[0.5, 0.5]]])
    session = Session(trace=Trace(tape, {"ids": ids}))
    assert session.ask("session")["traces"][0]["tokens"] == []
    assert session.ask("next")["t"] == 0
