"""The engine's process: every request has one end, errors end their own request alone, and a text is the one
that the model writes alone."""

import json
import math
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest
import torch

import pellucid
from pellucid.base.errors import FileError, ResourceError
from pellucid.base.worker import Worker, read_ready
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.answers.lines import End, EngineOptions, Piece, StepLine, parse_step
from pellucid.generation.scheduler import Engine
from pellucid.model import Model
from pellucid.server.openai.worker import process as engine_process
from pellucid.server.openai.worker import text_embedding
from pellucid.server.openai.worker.commands import Command, parse_command
from pellucid.server.openai.worker.process import (
    EngineWorker,
    choose_room,
    choose_threads,
    open_engine,
)


class DirectWorker(EngineWorker):
    """The worker without its process: commands are given, and lines are kept."""

    def __init__(self, model: Model, slots: int = 4) -> None:
        engine = Engine(model.module, model.tokenizer, stop_ids=model.eos_ids, slots=slots, queue=999)
        self.given: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.lines: list[StepLine] = []
        super().__init__(model, engine, self.given, lambda line: self.lines.append(parse_step(line)))

    def send(self, **table: Any) -> None:
        self.given.put(parse_command(json.dumps(table).encode()))

    def generate(self, id: int, prompt: Sequence[int], sampling: Any = (), **more: Any) -> None:
        request = {"prompt": prompt, "sampling": dict(sampling), **more}
        self.send(id=id, do="generate", request=request)

    def finish(self, *ids: int) -> "DirectWorker":
        """Runs until these requests have ended."""
        for _ in range(1000):
            if set(ids) <= {end.request for end in self.ends}:
                return self
            self.run_once()
        raise AssertionError("a request does not end")

    @property
    def ends(self) -> list[End]:
        return [end for line in self.lines for end in line.ends]

    def end(self, id: int) -> End:
        (found,) = [end for end in self.ends if end.request == id]
        return found

    def pieces(self, id: int, choice: int = 0) -> list[Piece]:
        every = (piece for line in self.lines for piece in line.pieces)
        return [piece for piece in every if (piece.request, piece.choice) == (id, choice)]

    def text(self, id: int, choice: int = 0) -> str:
        return "".join(piece.text for piece in self.pieces(id, choice))


@pytest.fixture(scope="module")
def model() -> Model:
    return pellucid.load("abcd")


@pytest.fixture
def worker(model: Model) -> DirectWorker:
    return DirectWorker(model)


SAMPLING = {"temperature": 1.0, "max_new_tokens": 8}


def test_texts_are_those_of_the_model_alone_whatever_runs_beside_them(
    model: Model, worker: DirectWorker
) -> None:
    for id in range(1, 11):
        worker.generate(id, [id % 4, 1], {**SAMPLING, "seed": id})
    worker.finish(*range(1, 11))
    for id in range(1, 11):
        wanted = model.generate(model.tokenizer.decode([id % 4, 1]), 8, 1.0, seed=id)
        (finish,) = [piece.finish for piece in worker.pieces(id) if piece.finish]
        assert worker.text(id) == wanted and finish == "length"
        assert sum(piece.new_tokens for piece in worker.pieces(id)) == 8
        assert worker.end(id) == End(id, seed=id)
    assert worker.lines[-1].slots == worker.lines[-1].queue == 0


def test_choices_have_pieces_of_their_own(model: Model, worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], {**SAMPLING, "seed": 5, "n": 3})
    worker.finish(1)
    wanted = model.generate("A B", 8, 1.0, seed=5, n=3)
    assert [worker.text(1, choice) for choice in range(3)] == wanted


def test_a_seed_that_is_not_given_comes_back(model: Model, worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], SAMPLING)
    seed = worker.finish(1).end(1).seed
    assert seed is not None
    assert worker.text(1) == model.generate("A B", 8, 1.0, seed=seed)


def test_a_request_for_no_tokens_ends_every_choice(worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], {"max_new_tokens": 0, "temperature": 1.0, "n": 2})
    worker.finish(1)
    assert [worker.pieces(1, choice)[0].finish for choice in (0, 1)] == ["length", "length"]


def test_a_cancelled_request_is_gone_before_the_next_step(worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], {"max_new_tokens": 14})
    worker.run_once()
    worker.run_once()
    assert worker.lines[-1].slots == 1
    worker.send(id=1, do="cancel")
    worker.finish(1)
    assert worker.lines[-1].slots == 0 and len(worker.pieces(1)) == 2
    worker.send(id=1, do="cancel")  # it has ended already: nothing is said
    worker.generate(2, [0], {"max_new_tokens": 1})
    assert [end.request for end in worker.finish(2).ends] == [1, 2]


def test_a_waiting_request_can_be_cancelled(model: Model) -> None:
    worker = DirectWorker(model, slots=1)
    worker.generate(1, [0, 1], {"max_new_tokens": 9})
    worker.generate(2, [0, 1], {"max_new_tokens": 9})
    worker.run_once()
    assert worker.lines[-1].queue == 1
    worker.send(id=2, do="cancel")
    worker.finish(1, 2)
    assert not worker.pieces(2) and len(worker.pieces(1)) == 9


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": [], "sampling": {}},
        {"prompt": [99], "sampling": {}},
        {"prompt": [0], "sampling": {"max_new_tokens": 99}},
        {"prompt": [0], "sampling": {"n": 9, "temperature": 1.0}},
        {"prompt": [0], "sampling": {"banned_tokens": [99]}},
        {"prompt": [0], "sampling": {"regex": "("}},
    ],
    ids=str,
)
def test_values_that_cannot_be_used_end_their_request_alone(worker: DirectWorker, request_: Any) -> None:
    worker.generate(1, [0, 1], {"max_new_tokens": 3})
    worker.send(id=2, do="generate", request=request_)
    worker.finish(1, 2)
    end = worker.end(2)
    assert end.error and not end.is_fault and not worker.pieces(2)
    assert worker.end(1).error is None and len(worker.pieces(1)) == 3


def test_log_probabilities_are_those_of_a_full_forward(model: Model, worker: DirectWorker) -> None:
    worker.generate(1, [0, 1, 2], {**SAMPLING, "seed": 3}, top_logprobs=4, prompt_logprobs=True, explain=True)
    worker.finish(1)
    prompt = [scores for line in worker.lines for scores in line.prompts]
    assert len(prompt) == 1 and not worker.lines[0].pieces and worker.lines[0].prompts == prompt
    listed = [*prompt[0].tokens, *(token for piece in worker.pieces(1) for token in piece.tokens or ())]
    wanted = model.score([token.id for token in listed])
    assert len(listed) == 11 and listed[0].logprob is None
    assert [token.logprob for token in listed[1:]] == pytest.approx(wanted.logprobs[1:], abs=1e-5)
    assert all(dict(token.top)[token.id] == token.logprob for token in listed[1:])
    for token in listed[3:]:
        assert token.logprob is not None and token.surprisal == -token.logprob
        assert token.rank == [id for id, _ in token.top].index(token.id)
        assert token.entropy == pytest.approx(-sum(math.exp(value) * value for _, value in token.top))
    assert [token.offset for token in prompt[0].tokens] == [0, 1, 3]
    text = worker.text(1)
    assert [token.offset for token in listed[3:]] == list(range(0, len(text), 2))


def test_a_long_prompt_is_scored_in_chunks_as_in_one_forward(small_model: Path) -> None:
    small = pellucid.load(small_model)
    worker = DirectWorker(small, slots=2)
    ids = [id % 290 for id in range(7, 7 * 301, 7)]
    worker.generate(1, ids, {"max_new_tokens": 1}, prompt_logprobs=True, top_logprobs=20)
    worker.generate(2, ids[:5], {"max_new_tokens": 20, "stop_ids": []})
    worker.finish(1, 2)
    listed = [token for line in worker.lines for scores in line.prompts for token in scores.tokens]
    assert [token.id for token in listed] == ids
    wanted = small.score(ids).logprobs[1:]
    assert [token.logprob for token in listed[1:]] == pytest.approx(wanted, abs=1e-5)
    assert all(len(token.top) == 20 for token in listed[1:])


def test_a_worker_with_nothing_to_do_waits(worker: DirectWorker) -> None:
    thread = threading.Thread(target=worker.run_once, daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive() and not worker.lines
    worker.send(id=1, do="embed", prompt=[1])
    thread.join(5)
    assert not thread.is_alive() and worker.end(1).embedding


def test_a_prompt_is_scored_without_a_new_token(model: Model, worker: DirectWorker) -> None:
    worker.generate(1, [0, 1, 2], {"max_new_tokens": 0}, prompt_logprobs=True, top_logprobs=0)
    worker.finish(1)
    (scores,) = [scores for line in worker.lines for scores in line.prompts]
    assert [token.id for token in scores.tokens] == [0, 1, 2] and not any(
        token.top for token in scores.tokens
    )
    assert worker.pieces(1) == [Piece(1, 0, "", 0, (), "length")]


def test_the_scores_of_a_long_prompt_come_in_several_lines(
    worker: DirectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "MOST_SCORED", 2)
    worker.generate(1, [0, 1, 2], {"max_new_tokens": 1}, prompt_logprobs=True, top_logprobs=0)
    worker.finish(1)
    listed = [[token.id for token in scores.tokens] for line in worker.lines for scores in line.prompts]
    assert listed == [[0, 1], [2]] and worker.lines[2].pieces


def test_a_request_that_asks_for_no_numbers_gets_none(worker: DirectWorker) -> None:
    worker.generate(1, [0], {"max_new_tokens": 2})
    worker.generate(2, [0], {"max_new_tokens": 2}, top_logprobs=0)
    worker.finish(1, 2)
    assert [piece.tokens for piece in worker.pieces(1)] == [None, None]
    assert [len(piece.tokens or ()) for piece in worker.pieces(2)] == [1, 1]


def test_the_ledger_is_the_file_that_the_model_writes(
    model: Model, worker: DirectWorker, tmp_path: Path
) -> None:
    worker.generate(1, [0, 1], {**SAMPLING, "seed": 3, "n": 2}, ledger=True)
    found = worker.finish(1).end(1).ledger
    _, ledger = model.generate([0, 1], 8, 1.0, seed=3, n=2, return_ledger=True)
    ledger.save(tmp_path / "ledger.json")
    wanted = json.loads((tmp_path / "ledger.json").read_bytes())
    assert found is not None and found.pop("sources") == {}
    wanted.pop("sources")
    assert found == wanted


def test_a_ledger_that_grows_too_large_ends_its_request(
    worker: DirectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "MOST_CANDIDATES", 10)  # each token has four
    worker.generate(1, [0, 1], {**SAMPLING, "seed": 3}, ledger=True)
    worker.generate(2, [0, 1], {**SAMPLING, "seed": 3})
    worker.finish(1, 2)
    assert "10 candidates" in str(worker.end(1).error) and not worker.end(1).is_fault
    assert len(worker.pieces(1)) == 2 and worker.end(2).error is None and worker.lines[-1].slots == 0


def test_an_embedding_is_the_mean_of_the_final_hidden_states(model: Model, worker: DirectWorker) -> None:
    worker.generate(9, [0], {"max_new_tokens": 9})
    worker.send(id=1, do="embed", prompt=[0, 1, 2])
    worker.send(id=2, do="embed", prompt=[3])
    found = worker.finish(1, 2, 9).end(1).embedding
    with torch.no_grad():
        mean = model.module.hidden_states(torch.tensor([[0, 1, 2]]))[0].double().mean(0)
    assert found == pytest.approx((mean / mean.norm()).tolist(), abs=1e-12)
    assert sum(value**2 for value in found) == pytest.approx(1)
    first = next(i for i, line in enumerate(worker.lines) if line.ends)
    assert worker.lines[first].pieces, "texts go on while prompts are embedded"


@pytest.mark.parametrize("prompt", [[], [99], [0] * 17])
def test_a_prompt_that_cannot_be_embedded_ends_alone(worker: DirectWorker, prompt: list[int]) -> None:
    worker.send(id=1, do="embed", prompt=prompt)
    worker.send(id=2, do="embed", prompt=[1])
    worker.finish(1, 2)
    assert worker.end(1).error and not worker.end(1).is_fault and worker.end(2).embedding


def test_texts_go_on_while_a_long_prompt_is_embedded(
    worker: DirectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_embedding, "CHUNK", 2)
    worker.generate(9, [0], {"max_new_tokens": 12})
    for id in (1, 2, 3):
        worker.send(id=id, do="embed", prompt=[0, 1, 2, 3, 0, 1, 2])
    worker.run_once()
    worker.run_once()
    assert not worker.ends and sum(piece.new_tokens for piece in worker.pieces(9)) == 2
    worker.send(id=1, do="cancel")
    worker.finish(1, 2, 3, 9)
    assert worker.end(1) == End(1)
    assert worker.end(2).embedding == worker.end(3).embedding is not None


def test_an_embedding_that_waits_can_be_cancelled(worker: DirectWorker) -> None:
    for id in (1, 2):
        worker.send(id=id, do="embed", prompt=[1])
    worker.send(id=2, do="cancel")
    worker.finish(1, 2)
    assert worker.end(1).embedding and worker.end(2) == End(2)


def test_texts_go_on_between_two_constraints_that_take_long(worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], {"max_new_tokens": 6})
    for id in range(2, 7):
        worker.generate(id, [0, 1], {"max_new_tokens": 3, "regex": f"A{{0,{id}}}( A| B)*"})
    worker.run_once()
    worker.run_once()
    assert sum(piece.new_tokens for piece in worker.pieces(1)) == 2
    assert worker.lines[-1].queue >= 3, "those that are not compiled yet wait"
    worker.send(id=6, do="cancel")
    worker.run_once()
    assert worker.end(6) == End(6)
    worker.finish(*range(1, 6))
    assert worker.lines[-1].queue == 0


Breaker = Callable[[Exception], None]


@pytest.fixture
def break_forward(monkeypatch: pytest.MonkeyPatch) -> Iterator[Breaker]:
    """Makes every forward pass of the model fail with an error."""

    def break_it(error: Exception) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(Transformer, "forward_packed", fail)
        monkeypatch.setattr(Transformer, "hidden_states", fail)

    return break_it


@pytest.mark.parametrize("error", [RuntimeError("the device is lost"), MemoryError()], ids=repr)
def test_an_error_of_the_server_ends_the_request_and_not_the_process(
    model: Model,
    worker: DirectWorker,
    break_forward: Breaker,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_forward(error)
    worker.generate(1, [0, 1], {"max_new_tokens": 3})
    worker.send(id=2, do="embed", prompt=[0])
    worker.finish(1, 2)
    assert worker.end(1).is_fault and worker.end(2).is_fault and worker.end(1).error
    monkeypatch.undo()
    worker.generate(3, [0, 1], {"max_new_tokens": 3})
    assert worker.finish(3).end(3).error is None and worker.lines[-1].slots == 0


def test_a_defect_in_what_a_request_returns_ends_it_alone(
    worker: DirectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(engine_process, "score_prompt", fail)
    worker.generate(1, [0, 1], {"max_new_tokens": 2}, prompt_logprobs=True, top_logprobs=0)
    worker.generate(2, [0, 1], {"max_new_tokens": 4})
    worker.finish(1, 2)
    assert worker.end(1).is_fault
    assert worker.end(2).error is None and sum(piece.new_tokens for piece in worker.pieces(2)) == 4
    assert worker.lines[-1].slots == 0


def test_a_search_that_finds_fewer_texts_than_were_asked_for_is_refused(worker: DirectWorker) -> None:
    worker.generate(1, [0, 1], {"beams": 3, "n": 2, "max_new_tokens": 1, "forced_tokens": [2]})
    worker.generate(2, [0, 1], {"max_new_tokens": 4})
    worker.finish(1, 2)
    error = worker.end(1).error
    assert error is not None and "n=2" in error and not worker.end(1).is_fault
    assert worker.end(2).error is None


def test_a_defect_of_the_loop_ends_every_request_and_not_the_process(
    worker: DirectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> bool:
        raise KeyError("defect")

    monkeypatch.setattr(worker.engine, "step", fail)
    worker.generate(1, [0, 1], {"max_new_tokens": 3})
    worker.send(id=2, do="embed", prompt=[0])
    worker.finish(1, 2)
    assert worker.end(1).is_fault
    monkeypatch.undo()
    worker.generate(3, [0, 1], {"max_new_tokens": 3})
    assert worker.finish(3).end(3).error is None and worker.lines[-1].slots == 0


def test_the_weights_are_held_as_the_options_say() -> None:
    assert "int8 weights" in repr(open_engine(EngineOptions("abcd", weights="int8"))[0])


def test_a_small_model_has_one_thread_unless_the_user_chose_otherwise() -> None:
    assert choose_threads(2_500_000, {}) == 1
    assert choose_threads(2_500_000, {"OMP_NUM_THREADS": "4"}) is None
    assert choose_threads(134_500_000, {}) is None


def test_slots_are_as_many_as_half_of_the_memory_holds(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_engine(EngineOptions("abcd", slots=1))[1].slots.cache.bytes
    for free, wanted in ((10**9, 32), (10 * one, 5), (1, 1)):
        monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda _, free=free: free)
        assert choose_room(model, None)[0] == wanted


def test_slots_are_shorter_than_a_context_that_no_memory_holds(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = replace(model.config, context_length=2**31 - 1)
    million = Cache(model.config, 1, model.config.context_length, device="meta").bytes * 10**6
    monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda _: 2 * million)
    like = cast(Model, SimpleNamespace(config=declared, module=model.module))
    length = model.config.context_length * 10**6
    assert choose_room(like, None) == (1, length) and choose_room(like, 4) == (4, length // 4)
    monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda _: 1)
    assert choose_room(like, None)[1] == 2**31 - 1  # which is refused


def test_more_slots_than_the_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.generation.slots.get_free_memory", lambda _: 1000)
    with pytest.raises(ResourceError):
        open_engine(EngineOptions("abcd", slots=9))


# ---- the process itself


@pytest.fixture
def child() -> Iterator[Worker]:
    """Starts the process as the server starts it."""
    options = json.dumps({"model": "abcd", "slots": 2})
    with Worker("-m", "pellucid.server.openai.worker.process", options, stderr=subprocess.PIPE) as worker:
        yield worker


def test_the_process_follows_lines_and_ends_with_its_input(child: Worker) -> None:
    stdin, stdout = cast(BinaryIO, child.process.stdin), cast(BinaryIO, child.process.stdout)
    ready = read_ready(stdout.readline())
    assert (ready["slots"], ready["capacity"]) == (2, 16) and ready["cache_bytes"] > 0
    stdin.write(
        b'{"id": 1, "do": "generate", "request": {"prompt": [0], "sampling": {"max_new_tokens": 2}}}\n'
    )
    stdin.flush()
    lines = [parse_step(stdout.readline())]
    while not any(end.request == 1 for end in lines[-1].ends):
        lines.append(parse_step(stdout.readline()))
    assert [end.error for line in lines for end in line.ends] == [None]
    began = time.monotonic()
    assert parse_step(stdout.readline()) == StepLine([], [], [], 0, 0)  # the heartbeat
    assert time.monotonic() - began < 5
    stdin.close()
    assert child.process.wait(5) == 0


def test_a_model_that_cannot_be_opened_is_said_in_the_first_line() -> None:
    """Without torch, which takes seconds to import."""
    script = """
from pellucid.base.errors import FileError
from pellucid.server.openai.worker import process

def fail(options):
    raise FileError(f"{options.model} is not there.")

process.open_engine = fail
process.main('{"model": "/nowhere/model"}')
"""
    with Worker("-c", script) as worker:
        with pytest.raises(FileError, match="/nowhere/model"):
            read_ready(cast(BinaryIO, worker.process.stdout).readline())
        assert worker.process.wait(5) == 1
