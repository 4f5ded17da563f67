"""The engine: requests of any kind, run together, each as it would be alone.

    engine = Engine(model.module, model.tokenizer)
    handle = engine.add(Request((1, 2, 3), Sampling(max_new_tokens=20)))
    for token in handle:
        print(token.text, end="")

Requests join and leave between two steps (continuous batching). A step reads the next token of every text,
and chunks of waiting prompts within a budget of tokens, in one forward pass. A request's text depends on its
prompt, its settings and its seed alone: on a CPU in float32 bit for bit, whatever runs beside it.

`add` and `cancel` may be called from any thread. One thread at a time runs a step: whichever waits for a
token, or the engine's own after `start`.
"""

import contextlib
import dataclasses
import logging
import secrets
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Self, get_args

import torch
from torch import Tensor

from pellucid.base.arguments import check_bool, check_float, check_int, check_int_list, check_type
from pellucid.base.errors import PellucidError, ResourceError, TokenError, UsageError
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.generation.ahead import (
    NO_LOGITS,
    STEPS,
    Ahead,
    can_go_ahead,
    find_host_reason,
    say_host_reason,
)
from pellucid.generation.constraints import compile_constraint
from pellucid.generation.context import check_fits
from pellucid.generation.decoders import Decoder
from pellucid.generation.handle import Handle
from pellucid.generation.request import Request
from pellucid.generation.samplers.chain import Chain, Chosen, choose
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK, CacheSlots, Feed, get_row, join_rows, split_rows
from pellucid.generation.strategies.beam_search import Beams
from pellucid.generation.strategies.sample import Job, Sample
from pellucid.generation.strategies.speculative import Speculate, Speculation
from pellucid.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds that a request waits for its reader before it is cancelled, so that its slots are free again."""


class Engine:
    """Runs requests on one model, in the slots of one cache.

    `slots` texts run at once, each of at most `capacity` tokens; `queue` more requests may wait. A step reads
    at most about `budget` tokens, prompts included, which are read in chunks of `chunk`. `memory` bounds the
    bytes of the cache, by default to what is free. With `is_static`, by default on a GPU, a decode step runs
    over all slots at once. With `lookup` or a `draft` model, up to `draft_tokens` proposed tokens are read
    with the last one of a text. A stream that runs by itself and is not read for `patience` seconds is
    cancelled.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer | None = None,
        *,
        stop_ids: Collection[int] = (),
        slots: int = 8,
        capacity: int | None = None,
        cache_dtype: torch.dtype | None = None,
        budget: int = 512,
        queue: int = 256,
        memory: int | None = None,
        chunk: int = CHUNK,
        is_static: bool | None = None,
        draft: Decoder | None = None,
        lookup: bool = False,
        draft_tokens: int = 4,
        patience: float = PATIENCE,
    ) -> None:
        decoders = (get_args(Decoder), "a module or its decoder", "`model.module` is one.")
        check_type("model", model, *decoders)
        if draft is not None:
            check_type("draft", draft, *decoders)
        if tokenizer is not None:
            check_type("tokenizer", tokenizer, Tokenizer, "a Tokenizer", "`model.tokenizer` is one.")
        self.model, self.tokenizer = model, tokenizer
        self.stop_ids = frozenset(check_int_list("stop_ids", stop_ids))
        self.budget, self.queue = check_int("budget", budget, least=1), check_int("queue", queue, least=0)
        self.capacity = model.config.context_length if capacity is None else capacity
        check_int("capacity", self.capacity, least=1, most=model.config.context_length)
        check_int("slots", slots, least=1, most=65_536)
        dtype = model.cache_dtype if cache_dtype is None else cache_dtype
        check_type("cache_dtype", dtype, torch.dtype, "a torch.dtype")
        check_int("chunk", chunk, least=1)
        if memory is not None:
            check_int("memory", memory, least=0)
        if is_static is not None:
            check_bool("is_static", is_static)
        self.slots = CacheSlots(model, slots, self.capacity, dtype, memory, chunk, is_static)
        self.speculation = (
            Speculation(self.slots, draft=draft, lookup=lookup, tokens=draft_tokens, memory=memory)
            if draft is not None or check_bool("lookup", lookup)
            else None
        )
        self._waiting: deque[Handle] = deque()
        self._running: list[Handle] = []
        self._stepping = threading.Lock()
        self._owner: int | None = None
        self.changed = threading.Condition()
        """Guards the queues; notified when a request, a token or room for one is new."""
        self._thread: threading.Thread | None = None
        self._stops = False
        self.patience = check_float("patience", patience, least=0)
        self.runs_ahead = isinstance(model, GpuDecoder)
        """Whether the device chooses the tokens of requests that it can, ahead of the host."""
        self._ahead: Ahead | None = None
        self._is_changed = False
        """Whether something is new since the last step began."""

    # ---- from any thread

    def add(self, request: Request, *, streams: bool = True) -> Handle:
        """Returns the handle of a new request, which begins when slots are free; first come, first served.

        A request that cannot run is refused here. Without `streams` its tokens are not kept for iteration,
        so that nothing waits for a reader.
        """
        check_type("request", request, Request, "a pellucid.Request")
        handle = self._make_handle(request, check_bool("streams", streams))
        with self.changed:
            if len(self._waiting) >= self.queue + len(self.slots.free):
                raise ResourceError(f"{len(self._waiting)} requests wait already: try again later.")
            self._waiting.append(handle)
            self.notify()
        return handle

    def cancel(self, handle: Handle) -> None:
        """Ends a request; what is generated so far remains its result."""
        check_type("handle", handle, Handle, "what `add` returned").is_cancelled = True
        if self._stepping.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._stepping.release()
        self.notify()

    def notify(self) -> None:
        """Wakes the threads that wait for something new."""
        with self.changed:
            self._is_changed = True
            self.changed.notify_all()

    @property
    def n_waiting(self) -> int:
        """The requests that wait for slots."""
        return len(self._waiting)

    @property
    def runs_by_itself(self) -> bool:
        return self._thread is not None

    def wait(self, handle: Handle) -> None:
        """Returns when something about a request may have changed: runs a step, unless another thread
        does."""
        check_type("handle", handle, Handle, "what `add` returned")
        if self._thread is not None:
            with self.changed:
                if not handle.is_done and not handle.has_unread:
                    self.changed.wait(timeout=1.0)
            return
        if not self.step():
            with self.changed:
                if not handle.is_done and not handle.has_unread:
                    self.changed.wait(timeout=0.05)  # another thread took the last step

    # ---- a thread of its own

    def start(self) -> Self:
        """Runs the steps in a thread until `stop`."""
        if self._thread is None:
            self._stops = False
            self._thread = threading.Thread(target=self._run, name="pellucid-engine", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread, and every request with it."""
        thread, self._stops = self._thread, True
        self.notify()
        if thread is not None:
            thread.join()
            self._thread = None
        with self._own():
            for handle in [*self._running, *self._waiting]:
                handle.is_cancelled = True
            self._sweep()
        self.notify()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stops:
            with self.changed:
                self._is_changed = False
            try:
                has_run = self.step()
            except Exception as error:  # a defect: those who wait for a token must not wait for ever
                with self._own():
                    for handle in self._running:
                        self._end(handle, "error", error)
                continue
            with self.changed:
                if not has_run and not self._is_changed:
                    self.changed.wait(timeout=1.0)

    # ---- one step

    def step(self) -> bool:
        """Runs one forward pass for all requests that can go on; False where there is none."""
        with self._own():
            self._sweep()
            if self._ahead is not None and not self._stays_ahead(self._ahead):
                self._leave_device()
            self._admit()
            if has_run := self._can_run_ahead():
                self._advance_ahead()
            elif planned := self._plan():
                self._advance(planned)
                has_run = True
            if has_run:
                self._sweep()
        with self.changed:
            self.changed.notify_all()
        return has_run

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        """Makes this thread the one that runs a step."""
        if self._owner == threading.get_ident():
            raise RuntimeError("a step of the engine was asked for inside a step.")
        with self._stepping:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    def _make_handle(self, request: Request, streams: bool) -> Handle:
        """Returns the handle of a request that can run here; raises where it cannot."""
        sampling, config = request.sampling, self.model.config
        if bad := [id for id in request.prompt if not 0 <= id < config.vocab_size]:
            raise TokenError(f"ids go from 0 to {config.vocab_size - 1}; the prompt has {bad[0]}.")
        sampling.check_vocabulary(config.vocab_size)
        prefix = config.mask.bidirectional_prefix
        allowed = config.context_length if sampling.context != "refuse" else self.capacity
        most = check_fits(len(request.prompt), sampling, allowed, prefix)
        if sampling.context != "refuse" and self.capacity < config.context_length:
            raise UsageError(
                f'context="{sampling.context}" needs slots of the whole context of '
                f"{config.context_length} tokens; this engine's have {self.capacity}."
            )
        if request.prompt_logprobs and len(request.prompt) > config.context_length:
            raise UsageError(
                f"the log-probabilities of the prompt need all of its {len(request.prompt):,} tokens in the "
                f"context of {config.context_length:,}: shorten it, or omit prompt_logprobs."
            )
        kind = choose_strategy(sampling)
        if (needed := kind.count_slots(request)) > self.slots.count:
            raise UsageError(
                f"the request takes {needed} slots, and the engine has {self.slots.count}: ask for fewer "
                "choices or beams, or use an engine with more slots."
            )
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        stop = self.stop_ids if sampling.stop_ids is None else frozenset(sampling.stop_ids)
        constraint = compile_constraint(sampling, self.tokenizer, config.vocab_size, stop)
        if constraint is not None:
            constraint.check_limit(most)
        fitting = dataclasses.replace(sampling, max_new_tokens=most)
        chain = Chain.make(fitting, request.prompt, config.vocab_size, stop, seed, constraint)
        tokens: list[Handle] = []
        job = Job(
            request,
            chain,
            most,
            config.context_length,
            int(prefix),
            self.tokenizer,
            lambda token: tokens[0].emit(token),
        )
        strategy = (
            Speculate(job, self.slots, self.speculation)
            if kind is Sample and self.speculation is not None
            else kind(job, self.slots)
        )
        handle = Handle(self, strategy, streams)
        if self.runs_ahead and (reason := find_host_reason(handle)) is not None:
            say_host_reason(reason)
        tokens.append(handle)
        return handle

    def _sweep(self) -> None:
        """Removes requests that are cancelled or done; of those that wait, which may be many, none is done
        by itself."""
        with self.changed:
            over = [
                one
                for one in self._running
                if one.is_done or one.is_cancelled or one.is_abandoned or one.strategy.is_done
            ]
            left = [one for one in self._waiting if one.is_cancelled or one.is_done]
            for handle in (*over, *left):
                if not handle.is_done:
                    self._end(handle, "cancelled")
            if over:
                self._running = [handle for handle in self._running if not handle.is_done]
            if left:
                self._waiting = deque(handle for handle in self._waiting if not handle.is_done)

    def _end(self, handle: Handle, reason: str, error: Exception | None = None) -> None:
        handle.error, handle.is_done = error, True
        handle.strategy.end(reason)

    def _admit(self) -> None:
        """Gives slots to waiting requests, in the order in which they came."""
        with self.changed:
            while self._waiting:
                handle = self._waiting[0]
                if handle.strategy.count_slots(handle.request) > len(self.slots.free):
                    return
                if handle.strategy.job.max_new_tokens == 0 and not handle.request.prompt_logprobs:
                    self._end(handle, "length")
                else:
                    self._begin(handle)
                self._waiting.popleft()

    def _begin(self, handle: Handle) -> None:
        """Gives a request its slots; one that is interrupted here waits on, without any."""
        try:
            handle.strategy.begin()
        except Exception as error:
            self._end(handle, "error", error)
            return
        except BaseException:
            handle.strategy.give_back_all()
            raise
        self._running.append(handle)

    def _plan(self) -> list[tuple[Handle, list[Feed]]]:
        """Returns what every request reads in this step: first texts, then prompts while the budget lasts; of
        the oldest prompt at least one chunk, so that texts cannot hold it up."""
        room, planned, reads_prompt = self.budget, list[tuple[Handle, list[Feed]]](), False
        ready = [handle for handle in self._running if not handle.waits_for_reader]
        self._propose(ready)
        ready = [handle for handle in ready if not handle.is_done]
        if len(ready) > 1:
            ready.sort(key=lambda handle: handle.strategy.reads_prompt)
        for handle in ready:
            if handle.strategy.reads_prompt:
                if reads_prompt and room <= 0:
                    continue
                reads_prompt = True
            feeds = handle.strategy.feeds(room)
            room -= sum(feed.n_tokens for feed in feeds)
            planned.append((handle, feeds))
        return planned

    def _propose(self, handles: Sequence[Handle]) -> None:
        """Proposes tokens to the requests that speculate; a draft that fails ends its request alone."""
        if self.speculation is None:
            return
        try:
            self.speculation.prepare([draft for handle in handles for draft in handle.strategy.drafts()])
        except Exception as error:
            if len(handles) == 1:
                self._end(handles[0], "error", error)
            else:
                for handle in handles:
                    self._propose([handle])

    @torch.inference_mode()
    def _advance(self, planned: Sequence[tuple[Handle, list[Feed]]]) -> None:
        feeds = [feed for _, some in planned for feed in some]
        try:
            logits = self.slots.forward(feeds)
            parts = split_rows(logits, [sum(feed.outputs for feed in some) for _, some in planned])
            results = [(handle, part) for (handle, _), part in zip(planned, parts, strict=True)]
            chosen = self._draw(results)
        except Exception as error:
            self._restart(planned)
            if len(planned) == 1:
                self._end(planned[0][0], "error", error)
            else:  # the request that fails alone is the one that failed
                for handle, _ in planned:
                    self._advance([(handle, handle.strategy.feeds(self.budget))])
            return
        except BaseException:
            self._restart(planned)
            raise
        for place, ((handle, part), tokens) in enumerate(zip(results, chosen, strict=True)):
            try:
                with self.changed:
                    handle.strategy.advance(part, tokens)
            except Exception as error:
                self._end(handle, "error", error)
            except BaseException:  # this one may have some of its tokens, and those after it have none
                self._end(handle, "cancelled")
                self._restart(planned[place + 1 :])
                raise

    # ---- steps that the device runs by itself

    def _can_run_ahead(self) -> bool:
        """Returns whether every request decodes, and the device can choose its tokens."""
        if not self.runs_ahead or self.speculation is not None or not self._running:
            return False
        assert isinstance(self.model, GpuDecoder)
        return self._ahead is not None or can_go_ahead(self.model, self.slots, self._running)

    def _stays_ahead(self, ahead: Ahead) -> bool:
        """Returns whether the device goes on with the same requests: none has come, or waits for its
        reader."""
        ahead.end_finished()
        can_admit = self._waiting and self._waiting[0].strategy.count_slots(self._waiting[0].request) <= len(
            self.slots.free
        )
        return not (can_admit or ahead.is_over) and ahead.can_stay(self._running)

    @torch.inference_mode()
    def _advance_ahead(self) -> None:
        """Launches steps ahead, and takes the tokens of those that are complete, of one at least."""
        try:
            if self._ahead is None:
                assert isinstance(self.model, GpuDecoder)
                self._ahead = Ahead(self.model, self.slots, self._running)
            for _ in range(STEPS):
                self._ahead.launch()
                self._take_ahead(self._ahead)
                if self._ahead.is_over or not self._ahead.is_ready:
                    return
        except BaseException as error:
            self._give_up_ahead()
            if not isinstance(error, Exception):
                raise
            self.runs_ahead = False  # the next step, on the host, says what is wrong with a request
            log.warning("the device cannot go ahead of the host any more, so decoding is slower: %s", error)

    def _take_ahead(self, ahead: Ahead) -> None:
        for handle, tokens in ahead.take():
            try:
                with self.changed:
                    handle.strategy.advance(NO_LOGITS, tokens)
            except Exception as error:
                self._end(handle, "error", error)
        ahead.end_finished()

    @torch.inference_mode()
    def _leave_device(self) -> None:
        """Takes the tokens of all launched steps, and goes on here."""
        ahead = self._ahead
        try:
            while ahead is not None and ahead.has_steps:
                self._take_ahead(ahead)
            if ahead is not None:
                ahead.close()
                self._ahead = None
        except BaseException:
            self._give_up_ahead()
            raise
        self._sweep()

    def _give_up_ahead(self) -> None:
        """Empties the slots of requests whose tokens on the device are lost: they are read again."""
        self._ahead = None
        for handle in self._running:
            for slot in handle.strategy.held:
                self.slots.reset(slot)
            handle.strategy.restart()

    def _restart(self, planned: Sequence[tuple[Handle, list[Feed]]]) -> None:
        """Empties the slots that a failed step may have half written."""
        for handle, feeds in planned:
            for feed in feeds:
                self.slots.reset(feed.slot)
            handle.strategy.restart()

    def _draw(self, results: Sequence[tuple[Handle, Tensor]]) -> list[list[Chosen | PellucidError]]:
        """Draws the tokens of every request at once, and returns those of each."""
        draws = [handle.strategy.draws() for handle, _ in results]
        rows = [
            get_row(logits, row) for (_, logits), some in zip(results, draws, strict=True) for row, _ in some
        ]
        if not rows:
            return [[] for _ in results]
        states = [state for some in draws for _, state in some]
        jobs = [handle.strategy.job for (handle, _), some in zip(results, draws, strict=True) for _ in some]
        chosen = iter(choose(join_rows(rows), states, wanted=[job.wanted for job in jobs]))
        return [list(islice(chosen, len(some))) for some in draws]


def choose_strategy(sampling: Sampling) -> type[Sample]:
    """Returns the strategy of a request."""
    return Beams if sampling.beams > 1 else Sample
