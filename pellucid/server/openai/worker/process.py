"""The process of a served model: `python -m pellucid.server.openai.worker.process OPTIONS`.

OPTIONS is a JSON object, `EngineOptions`; the lines are those of `generation/answers/lines.py`. The main
thread owns the model: it takes all commands that are there, runs one step for all texts, and writes one line
of what changed. A thread reads the commands, another writes a line every second. An error ends its own
request, never the process, which ends at once when its input does.
"""

import bisect
import gc
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import PellucidError, UsageError, quote
from pellucid.base.worker import describe_failure, open_output
from pellucid.formats.pretrained import parameter_count
from pellucid.generation.answers.alignment import ChoicePieces, score_prompt
from pellucid.generation.answers.lines import (
    End,
    EngineOptions,
    EngineReady,
    GenerateRequest,
    Piece,
    PromptScores,
    StepLine,
    format_step,
)
from pellucid.generation.constraints import CONSTRAINTS
from pellucid.server.openai.worker.commands import Command, parse_command
from pellucid.server.openai.worker.text_embedding import TextEmbedding

if TYPE_CHECKING:  # torch is imported when the model is
    from pellucid.generation.handle import Handle
    from pellucid.generation.request import Completion
    from pellucid.generation.scheduler import Engine
    from pellucid.model import Model

SLOTS = 32
"""Texts that run at once by default, where the memory holds them."""
SHARE = 0.5
"""Of the free memory, what their keys and values may take by default."""
MOST_CANDIDATES = 100_000
"""Of all tokens in the ledger of one answer, which takes about 30 megabytes with as many."""
FEW_PARAMETERS = 20_000_000
"""Of a model that is computed with one thread: its products are so small that two threads take a third more
processor time for the same text, and the HTTP process has a core of its own."""
HEARTBEAT_SECONDS = 1.0
MOST_SCORED = 256
"""Tokens of a prompt in one line."""
DEBUG = "PELLUCID_DEBUG"
"""The environment variable with which unexpected errors print their traceback."""


class ServedText:
    """One request in the engine."""

    def __init__(self, id: int, given: GenerateRequest, handle: "Handle") -> None:
        self.id, self.given, self.handle = id, given, handle
        lists_tokens = given.top_logprobs is not None or given.explain
        count = handle.request.sampling.n
        self.choices = [ChoicePieces(id, choice, lists_tokens) for choice in range(count)]
        self.waits_for_prompt = given.prompt_logprobs
        """Whether the scores of its prompt are still to come."""
        self.n_candidates = 0
        """In the entries of its ledger so far."""

    def make_pieces(self) -> list[Piece]:
        """Returns the pieces that are new."""
        tokens = self.handle.take()
        if not tokens:
            return []
        if self.given.ledger:
            self.n_candidates += sum(len(token.entry.candidates) for token in tokens if token.entry)
        if len(tokens) == 1:
            found = [self.choices[tokens[0].choice].add(tokens)]
        else:
            own = ([token for token in tokens if token.choice == one.choice] for one in self.choices)
            found = [one.add(some) for one, some in zip(self.choices, own, strict=True) if some]
        return [piece for piece in found if piece is not None]


class EngineWorker:
    """Follows commands with an engine, which only the thread that calls `run` touches."""

    def __init__(
        self,
        model: "Model",
        engine: "Engine",
        commands: "queue.SimpleQueue[Command]",
        write: Callable[[bytes], None],
        cache_dtype: str | None = None,
    ) -> None:
        self.model, self.engine, self._commands, self._write = model, engine, commands, write
        self._cache_dtype = cache_dtype
        """Of keys and values, where it is not the model's."""
        self._texts: dict[int, ServedText] = {}
        self._slow: deque[Command] = deque()
        """Embeddings, and requests with a constraint: a part of one between two steps, since texts go on."""
        self._embedding: TextEmbedding | None = None
        """Of the first of them, where it is begun."""
        self._pieces: list[Piece] = []
        self._prompts: list[PromptScores] = []
        self._ends: list[End] = []
        self._actions: dict[str, Callable[[Command], None]] = {
            "generate": self._generate,
            "cancel": self._cancel,
            "embed": self._slow.append,
            "refuse": self._refuse,
        }

    def run(self) -> None:
        """Runs for ever: commands, a step, a line."""
        while True:
            self.run_once()

    def run_once(self) -> None:
        """Takes all commands, waiting for one where there is nothing to do, and runs one step."""
        try:
            self._take_commands()
            if self._slow:
                self._follow_slow()
            if self._texts:
                self.engine.step()
            for text in list(self._texts.values()):
                self._collect(text)
            self._write_news()
        except Exception as error:  # a defect: those who wait must not wait for ever
            self._fail(error)

    def write_heartbeat(self) -> None:
        """Writes a line without news; from any thread."""
        self._write(format_step(StepLine([], [], [], *self._count())))

    def _count(self) -> tuple[int, int]:
        slots = self.engine.slots
        return slots.count - len(slots.free), self.engine.n_waiting + len(self._slow)

    def _write_news(self) -> None:
        """Writes a line of what changed. Scores of prompts and ledgers have lines of their own: they may be
        long, and whoever reads one does nothing else meanwhile."""
        if not (self._pieces or self._ends or self._prompts):
            return
        count = self._count()
        lines = [
            StepLine([], [PromptScores(id, tokens[start : start + MOST_SCORED])], [], *count)
            for id, tokens in self._prompts
            for start in range(0, len(tokens), MOST_SCORED)
        ]
        short = [end for end in self._ends if end.ledger is None]
        if self._pieces or short:
            lines.append(StepLine(self._pieces, [], short, *count))
        lines += [StepLine([], [], [end], *count) for end in self._ends if end.ledger is not None]
        for line in list(map(format_step, lines)):
            self._write(line)
        self._pieces, self._prompts, self._ends = [], [], []

    # ---- commands

    def _take_commands(self) -> None:
        is_idle = not (self._texts or self._slow or self._ends)
        while True:
            try:
                command = self._commands.get(block=is_idle)
            except queue.Empty:
                return
            is_idle = False
            self._actions[command.do](command)

    def _generate(self, command: Command) -> None:
        assert command.request is not None
        if any(getattr(command.request.sampling, name) is not None for name in CONSTRAINTS):
            self._slow.append(command)
        else:
            self._add(command)

    def _follow_slow(self) -> None:
        """Follows a part of the first command that takes long."""
        command = self._slow[0]
        if command.do == "embed":
            end = self._embed(command)
            self._ends += [] if end is None else [end]
            is_over = end is not None
        else:
            self._add(command)
            is_over = True
        if is_over:
            self._slow.popleft()
            self._embedding = None

    def _add(self, command: Command) -> None:
        assert command.given is not None and command.request is not None
        try:
            handle = self.engine.add(command.request)
        except Exception as error:
            self._ends.append(describe_error(command.id, error))
        else:
            self._texts[command.id] = ServedText(command.id, command.given, handle)

    def _cancel(self, command: Command) -> None:
        text = self._texts.pop(command.id, None)
        if text is not None:
            text.handle.cancel()
            self._ends.append(End(command.id, text.handle.seed))
        elif found := [one for one in self._slow if one.id == command.id]:
            self._embedding = None if found[0] is self._slow[0] else self._embedding
            self._slow.remove(found[0])
            self._ends.append(End(command.id))

    def _refuse(self, command: Command) -> None:
        self._ends.append(End(command.id, error=command.error))

    # ---- after a step

    def _collect(self, text: ServedText) -> None:
        """Adds what is new of a request to the line; an error there ends this request alone."""
        try:
            self._collect_news(text)
        except Exception as error:
            self._texts.pop(text.id, None)
            text.handle.cancel()
            self._ends.append(describe_error(text.id, error))

    def _collect_news(self, text: ServedText) -> None:
        pieces = text.make_pieces()
        if text.n_candidates > MOST_CANDIDATES:
            raise UsageError(
                f"the ledger has more than {MOST_CANDIDATES:,} candidates: ask for fewer tokens, or for a "
                "smaller temperature."
            )
        if text.waits_for_prompt and text.handle.error is None and (pieces or text.handle.is_done):
            text.waits_for_prompt = False
            self._prompts.append(self._score_prompt(text))
        self._pieces += pieces
        if text.handle.is_done:
            self._ends.append(self._end(text))
            del self._texts[text.id]

    def _score_prompt(self, text: ServedText) -> PromptScores:
        handle, tokenizer = text.handle, self.engine.tokenizer
        scored = score_prompt(tokenizer, text.given.prompt, handle.prompt_logprobs, handle.prompt_tops)
        return PromptScores(text.id, scored)

    def _end(self, text: ServedText) -> End:
        try:
            completions = text.handle.result()
            check_count(completions, len(text.choices))
            ledger = self._make_ledger(text, completions) if text.given.ledger else None
        except Exception as error:
            return describe_error(text.id, error)
        for completion, choice in zip(completions, text.choices, strict=True):
            if not choice.has_ended:
                self._pieces.append(choice.end(completion.finish))
        return End(text.id, text.handle.seed, ledger=ledger)

    def _make_ledger(self, text: ServedText, completions: "list[Completion]") -> dict[str, Any]:
        """Returns what the ledger file of a request holds."""
        from pellucid.generation.ledger.file import make_file_data
        from pellucid.generation.ledger.ledger import make_ledger

        request = text.handle.request
        return make_file_data(make_ledger(self.model, request, completions, cache_dtype=self._cache_dtype))

    def _embed(self, command: Command) -> End | None:
        """Reads some tokens of a prompt; returns the end with the last of them."""
        try:
            if self._embedding is None:
                self._embedding = TextEmbedding(self.model, command.prompt)
            if not self._embedding.read():
                return None
            return End(command.id, embedding=self._embedding.to_list())
        except Exception as error:
            return describe_error(command.id, error)

    def _fail(self, error: Exception) -> None:
        """Ends every request that has no end yet, and those whose end was not written."""
        waiting = [*self._texts, *(one.id for one in self._slow), *(end.request for end in self._ends)]
        for text in self._texts.values():
            text.handle.cancel()
        self._texts.clear()
        self._slow.clear()
        self._embedding = None
        self._pieces, self._prompts, self._ends = [], [], []
        ends = [describe_error(id, error) for id in waiting]
        self._write(format_step(StepLine([], [], ends, *self._count())))


def check_count(completions: "Sequence[Completion]", n: int) -> None:
    """Raises where a beam search ended with fewer texts than were asked for."""
    if len(completions) < n:
        raise UsageError(
            f"n={n} texts are asked for, and the beam search found {len(completions)}: ask for fewer, or "
            "allow more tokens."
        )


def describe_error(id: int, error: Exception) -> End:
    """Returns the end of a request by an error; that of the request's own values is not the server's."""
    if isinstance(error, PellucidError):
        return End(id, error=str(error))
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    if isinstance(error, MemoryError):
        return End(id, error="there is not enough memory for this request.", is_fault=True)
    return End(id, error=f"the engine failed with {type(error).__name__}: {quote(error)}.", is_fault=True)


# ---- starting


def open_engine(options: EngineOptions) -> "tuple[Model, Engine]":
    """Returns the model with its weights, and its engine."""
    from pellucid.generation.decoders import make_decoder
    from pellucid.generation.scheduler import Engine
    from pellucid.generation.settings.keywords import read_engine_options
    from pellucid.generation.slots import CHUNK
    from pellucid.model import Model

    model = Model.from_pretrained(
        options.model, device=options.device, dtype=options.dtype, weights=options.weights
    )
    given = read_engine_options(model, {} if options.cache is None else {"cache": options.cache})
    slots, capacity = choose_room(model, options.slots, given.get("cache_dtype"))
    engine = Engine(
        make_decoder(model),
        model.pretrained.tokenizer,
        stop_ids=model.eos_ids,
        slots=slots,
        capacity=capacity,
        queue=options.queue + slots,  # a request may take several slots, so that more of them wait
        budget=slots + CHUNK,  # a chunk of a prompt beside a token of every text, so that no text waits long
        **given,
    )
    return model, engine


def choose_room(model: "Model", slots: int | None, cache_dtype: Any = None) -> tuple[int, int]:
    """Returns the number of slots, by default as many of the whole context as a share of the free memory
    holds, at least 1 and at most `SLOTS`; and the tokens of each: the whole context, or where there is no
    memory for it, what the share holds."""
    from pellucid.engine.cache import Cache
    from pellucid.engine.device_memory import get_free_memory
    from pellucid.generation.slots import CHUNK

    dtype = model.module.dtype if cache_dtype is None else cache_dtype
    free, context = get_free_memory(model.module.device), model.config.context_length

    def measure(count: int, capacity: int) -> int:
        return Cache(model.config, count, capacity, dtype=dtype, device="meta").bytes

    share = int(SHARE * free)
    count = max(1, min(SLOTS, share // max(measure(1, context), 1))) if slots is None else slots
    if measure(count, context) <= free:
        return count, context
    most = bisect.bisect_right(range(1, context), share, key=partial(measure, count))
    return count, most if most >= CHUNK else context  # which the engine then refuses, with the sizes


def choose_threads(n_parameters: int, environment: Mapping[str, str]) -> int | None:
    """Returns the number of threads for a model of that size; None where torch's own number is right, or the
    user has chosen one."""
    is_chosen = any(environment.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    return 1 if n_parameters < FEW_PARAMETERS and not is_chosen else None


def use_threads(model: "Model") -> None:
    """Sets the number of threads of this process for a model."""
    import torch

    count = choose_threads(parameter_count(model.config.parameters()), os.environ)
    if count is not None:
        torch.set_num_threads(count)


def main(argument: str) -> None:
    """Loads the model and follows commands until standard input ends."""
    # They are the parent's, which ends the input when the last answer is given; a service manager may send
    # them to every process of a group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    write = open_output()
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(commands,), name="commands", daemon=True).start()
    try:
        options = EngineOptions(**json.loads(argument))
        model, engine = open_engine(options)
        use_threads(model)
    except Exception as error:
        write(describe_failure(error))
        os._exit(1)
    ready = EngineReady(engine.slots.count, engine.capacity, engine.slots.cache.bytes)
    write(json.dumps({"ready": ready._asdict()}).encode() + b"\n")
    worker = EngineWorker(model, engine, commands, write, options.cache)
    threading.Thread(target=_beat, args=(worker,), name="heartbeat", daemon=True).start()
    gc.freeze()  # what is loaded now lives as long as the process: no collection looks at it again
    worker.run()


def _read(commands: "queue.SimpleQueue[Command]") -> None:
    """Reads commands until the input ends, and the process with it."""
    for line in sys.stdin.buffer:
        commands.put(parse_command(line))
    os._exit(0)


def _beat(worker: EngineWorker) -> None:
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        worker.write_heartbeat()


if __name__ == "__main__":
    main(*sys.argv[1:])
