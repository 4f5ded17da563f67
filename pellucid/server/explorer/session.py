"""A session: one model's weights held once in float64, and its traces by id, within stated limits."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.arguments import check_path
from pellucid.base.dtypes import Array
from pellucid.base.errors import PellucidError, ResourceError, TokenError, UsageError, unknown
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.engine.device_memory import get_free_memory
from pellucid.explanation.reuse import ReusingTape, has_same_bits
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_trace
from pellucid.formats.pretrained import as_lazy, parameter_count, shorten_model_path
from pellucid.formats.quantizing import check_weights
from pellucid.formats.resolve import is_run, make_label
from pellucid.model import Model, load
from pellucid.reference.tape import Tape
from pellucid.server.explorer.editing import (
    FINISHED,
    MOST_EDITS,
    CellEdit,
    describe_edits,
    find_computed,
    get_edited,
    group_edits,
)
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest, TraceSummary, find_buffers
from pellucid.server.explorer.progress import TraceProgress
from pellucid.server.explorer.question import ask
from pellucid.server.explorer.size import RunSize, estimate_size, find_most_tokens
from pellucid.server.explorer.weights import HeldWeights
from pellucid.text.prompts import Prompt, make_batch

if TYPE_CHECKING:
    from pellucid.generation.ledger.content import LedgerRecord

MOST_TRACES = 8
MOST_BYTES = 4_000_000_000
"""Limits of the traces that a session holds, and of their bytes together: the least recently used is dropped,
and computed again when it is asked for. Bytes that a trace shares with the weights or with another trace
count once."""
MOST_SUMMARIES = 5000
"""Traces that a session knows, held or dropped: of more, the oldest are forgotten."""
MOST_RUN_BYTES = MOST_BYTES // 2
"""Bytes of the values of a forward pass; with `MOST_BYTES` it bounds the tokens of a prompt."""
SMALL_BYTES = 100_000_000
"""Gradients of fewer bytes are computed at once, without an estimate."""
TEXTS = (
    "The cat sat on",
    "The animal didn't cross the street because it was too tired",
    "Dog bites man",
)
"""Prompts to begin with, for a model that can encode them."""


def read_ledger_file(source: str) -> "LedgerRecord | None":
    """Returns the ledger of a file; None where it is something else."""
    if not source.endswith(".json"):
        return None
    from pellucid.generation.ledger.file import is_ledger, read_ledger

    return read_ledger(Path(source)) if is_ledger(Path(source)) else None


def shorten_path(source: str) -> str:
    """Returns the last part of a path; a model's name as it is, and that of a file of the library."""
    path = Path(label := make_label(source))
    return shorten_model_path(path) if len(path.parts) > 1 and path.exists() else label


class Session:
    """Holds a model and its traces, and answers questions about them.

    >>> session = Session.open("abcd")
    >>> session.run(RunRequest("A B")).id
    't1'
    >>> session.ask("next", t=1, count=1)["tokens"][0]["label"]
    'B'

    A second run has an id of its own. `traces` lists both, also after one has been dropped for the memory of
    others; it is then computed again when a question is about it.

    >>> session.run(RunRequest("A B C", target="D", backward=True)).id
    't2'
    >>> [trace["has_gradients"] for trace in session.ask("session")["traces"]]
    [False, True]
    """

    def __init__(
        self,
        model: Model | None = None,
        trace: Trace | None = None,
        source: str = "",
        most_traces: int = MOST_TRACES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.source = source or (model.name if model else "")
        """The name or path that was opened; empty for a trace that has no file."""
        self.held_as: str | None = None
        """How the model's matrices were asked for: "int8", for example."""
        self.has_integers = False
        """Whether weights of the model are quantized: their floats are held here."""
        self.model: Model | None = None
        self.weights: HeldWeights | None = None
        if model is not None:
            self.has_integers = bool(as_lazy(model.pretrained.weights).types)
            self.weights = HeldWeights(model.weights, model.config.parameters())
            self.model = model.replace(weights=self.weights)
        self.traces: dict[str, HeldTrace] = {}
        """Those that are held, the least recently used first."""
        self.summaries: dict[str, TraceSummary] = {}
        """Every trace, the oldest first."""
        self.ledger: LedgerRecord | None = None
        """How the tokens of a text were chosen, where that is what was opened."""
        self.progress: TraceProgress | None = None
        self.failed: str | None = None
        """The message of the last run, where it failed."""
        self._most_traces, self._most_bytes = most_traces, most_bytes
        self._count, self._slowdown = 0, 1.0
        self._computing, self._changing = threading.RLock(), threading.RLock()
        self._opened = Trace(Tape()) if trace is None else trace
        if trace is not None:
            self._hold(trace)

    @classmethod
    def open(cls, source: str, path: str | None = None, weights: str | None = None) -> "Session":
        """Returns the session of a model, of a run's newest model, of the model of a ledger (.json), or of a
        trace file (.json). `path` is where the model is read, if not by the name under which it is shown, and
        `weights` how its matrices are held (see `pellucid.load`): their numbers are those of the session."""
        check_path("source", source)
        check_weights(weights)
        ledger = read_ledger_file(source)
        if ledger is None and source.endswith(".json"):
            if weights is not None:
                raise UsageError(
                    f"{source} is a trace, which holds its own numbers: omit weights (--weights)."
                )
            return cls(trace=read_trace(source), source=source)
        source = source if ledger is None else ledger.model.path or ledger.model.name
        session = cls(load(path or source, weights=weights), source=source)
        session.ledger, session.held_as = ledger, weights
        assert session.weights is not None
        session.weights.read_ahead()
        return session

    # ---- what it is

    @property
    def kind(self) -> str:
        """The kind of the source: "model", "run" or "trace"."""
        return "trace" if self.model is None else "run" if is_run(self.source) else "model"

    @property
    def name(self) -> str:
        """The name under which the model was opened, of a path the last part; of a trace, its model's."""
        return shorten_path(self.source) if self.model else str(self._opened.run.get("model", self.source))

    @cached_property
    def presets(self) -> list[str]:
        """Prompts to begin with: those of `TEXTS` that the tokenizer can encode, else its first two words."""
        model = self.model
        if model is None:
            return []
        tokenizer = model.pretrained.tokenizer
        first_two = list(range(min(2, model.config.vocab_size)))
        if tokenizer is None:
            return [str(first_two)]
        found = [text for text in TEXTS if self._can_encode(text)]
        if not found:
            with contextlib.suppress(PellucidError):
                found = [text for text in [tokenizer.decode(first_two)] if self._can_encode(text)]
        return found

    def _can_encode(self, text: str) -> bool:
        """Returns whether a text fits the model, with a token for each of its parts."""
        assert self.model is not None
        try:
            ids = self.model.encode(text)
        except PellucidError:
            return False
        unknown = self.model.tokenizer.unknown_id
        return len(ids) <= self.most_tokens and unknown not in ids

    @cached_property
    def most_tokens(self) -> int:
        """Tokens of a prompt with its target: the context length, or as many as `MOST_RUN_BYTES` hold."""
        if self.model is None:
            return 0
        return find_most_tokens(self.model.config, min(MOST_RUN_BYTES, self._most_bytes))

    @cached_property
    def sizes(self) -> dict[str, Any]:
        """The number of parameters, tokens, layers and heads, and the config in one line."""
        if self.model is not None:
            config = self.model.config
            count = parameter_count(config.parameters())
            sizes = {"vocab": config.vocab_size, "layers": config.n_layer, "heads": config.n_head}
            words = [
                pluralize(config.n_layer, "layer"),
                pluralize(config.d_model, "channel"),
                pluralize(config.n_head, "head"),
                *([pluralize(config.n_kv_head, "key head")] * (config.n_kv_head != config.n_head)),
                pluralize(config.vocab_size, "token"),
                f"context {config.context_length:,}",
            ]
            return {"parameters": count, "config": ", ".join(words), **sizes}
        tape = self._opened.tape
        count = sum(tape.values[name].size for name, role in tape.roles.items() if role == "param")
        layers = {name.split(".")[1] for name in tape.values if name.startswith("blocks.")}
        patterns = [tape.values[name].shape for name in tape.values if name.endswith(".attn.pattern")]
        heads = patterns[0][-3] if patterns and len(patterns[0]) > 2 else 0
        vocab = tape["logits"].shape[-1] if "logits" in tape else 0
        words = [pluralize(len(layers), "layer"), pluralize(heads, "head"), pluralize(vocab, "token")]
        sizes = {"vocab": vocab, "layers": len(layers), "heads": heads}
        return {"parameters": count, "config": ", ".join(words), **sizes}

    def label_tokens(self, ids: list[int]) -> list[dict[str, Any]]:
        """Returns the label and the id of each token."""
        if self.model is not None:
            return [{"label": self.model.label(id), "id": id} for id in ids]
        labels = self._opened.labels.get("v", [])
        return [{"label": labels[id] if 0 <= id < len(labels) else str(id), "id": id} for id in ids]

    def write_prompt(self, prompt: Prompt | None) -> str | None:
        """Returns a prompt as text, None where no text has these token ids."""
        if prompt is None or isinstance(prompt, str) or self.model is None:
            return prompt if isinstance(prompt, str) else None
        if self.model.pretrained.tokenizer is None:
            return str(list(prompt))
        with contextlib.suppress(PellucidError):
            text = self.model.tokenizer.decode(prompt)
            if self.model.encode(text) == list(prompt):
                return text
        return None

    @property
    def pending(self) -> list[int]:
        """The token ids of the run that is being computed."""
        progress = self.progress  # once: another thread sets it to None
        return progress.ids if progress else []

    @property
    def newest(self) -> TraceSummary | None:
        """The trace that was made last."""
        return next(reversed(list(self.summaries.values())), None)  # a copy: another thread may add one

    def estimate_gradients(self, count: int | None = None) -> dict[str, float] | None:
        """Returns the seconds and bytes that gradients of `count` tokens would take, by default of the newest
        prompt; None where there is no prompt, where they are next to nothing, and while the weights are read.

        The backward pass computes twice what the forward pass does, and writes the gradients at the speed at
        which the weights were written.
        """
        weights = self.weights
        if count is None:
            count = len(self.pending or (self.newest.ids if self.newest else []))
        if self.model is None or weights is None or not count or weights.read_count < len(weights):
            return None
        written, whole = self._estimate_written(count)
        if written < SMALL_BYTES:
            return None
        seconds = 2 * self._estimate_forward(count) + written / weights.speed * self._slowdown
        return {"seconds": seconds, "bytes": whole}

    def _estimate_written(self, count: int) -> tuple[int, int]:
        """Returns the bytes that the gradients of `count` tokens have, and those of the whole run."""
        assert self.model is not None
        forward, both = (
            estimate_size(self.model.config, count, has_target=True, backward=backward)
            for backward in (False, True)
        )
        return both.bytes - forward.bytes, both.bytes

    def has_small_gradients(self, prompt: Prompt, target: Prompt) -> bool:
        """Returns whether gradients of a prompt with its target take next to nothing."""
        if self.model is None:
            return False
        ids = make_batch(self.model, prompt, target).rows[0]
        return self._estimate_written(len(ids))[0] < SMALL_BYTES

    def _estimate_forward(self, count: int) -> float:
        """Returns how long the newest whole forward pass took, more for more tokens; 0 where none is held."""
        runs = [
            held.seconds * max(1.0, count / len(held.summary.ids))
            for held in list(self.traces.values())
            if held.request and not held.request.edits and not held.summary.has_gradients
        ]
        return runs[-1] if runs else 0.0

    # ---- traces

    def run(self, request: RunRequest) -> HeldTrace:
        """Runs the specification and holds the trace."""
        if self.model is None:
            raise UsageError("a trace is a finished run: open its model to run another prompt.")
        return self.compute(request)

    def edit(self, held: HeldTrace, edit: CellEdit) -> HeldTrace:
        """Computes the trace again with one more cell given."""
        return self.compute(self.add_edit(held, edit), held.id)

    def add_edit(self, held: HeldTrace, edit: CellEdit) -> RunRequest:
        """Returns the request of a trace with one more cell given; with one less where the number is the one
        that the cell has without its edit, so that gradients pass it again."""
        if held.request is None:
            raise UsageError(FINISHED)
        others = [one for one in held.request.edits if (one.name, one.index) != (edit.name, edit.index)]
        computed = held.trace.value(find_computed(held.trace, edit.name) or edit.name)
        is_leaf = edit.name not in held.trace.tape.steps
        own = self.get_unedited(held).trace.value(edit.name) if is_leaf and held.request.edits else computed
        if not has_same_bits(np.asarray(own[edit.index]), np.asarray(edit.value)):
            others.append(edit)
        if len(others) > MOST_EDITS:
            raise UsageError(f"a trace has at most {MOST_EDITS:,} edits: undo some first.")
        return replace(held.request, edits=tuple(others))

    def compute(self, request: RunRequest, parent: str | None = None, id: str | None = None) -> HeldTrace:
        """Computes the trace of a request, after the run that is being computed, and holds it: under the id
        of a trace that was dropped, else under a new one."""
        with self._computing, self._report_progress(request) as progress:
            trace = self._trace(request, progress, parent)
            return self._hold(trace, request, parent, id, progress.seconds, progress.steps_run)

    def trace_without_holding(self, request: RunRequest, near: HeldTrace) -> Trace:
        """Computes the trace of a request that is asked for once, most of it taken over from another."""
        with self._computing:
            return self._trace(request, TraceProgress([], 0), near.id)

    @contextlib.contextmanager
    def _report_progress(self, request: RunRequest) -> Iterator[TraceProgress]:
        """Shows the run as `progress` while it is computed, and its message as `failed` where it fails."""
        self.failed = None
        try:
            ids, size = self._check_size(request)
            self.progress = TraceProgress(ids, size.steps)
            if self.weights is not None:
                self.weights.read_all()
            self.progress.begin_computing()
            yield self.progress
            self._slowdown = self.progress.compute_slowdown()
        except MemoryError:
            self.failed = "there is not enough memory for this run. Shorten the prompt."
            raise ResourceError(self.failed) from None
        except PellucidError as error:
            self.failed = str(error)
            raise
        finally:
            self.progress = None

    def _check_size(self, request: RunRequest) -> tuple[list[int], RunSize]:
        """Returns the token ids of a run and its size; raises where it does not fit the memory."""
        assert self.model is not None
        ids = make_batch(self.model, request.prompt, request.target).rows[0]
        if len(ids) > self.most_tokens:
            raise TokenError(
                f"{pluralize(len(ids), 'token')}: the explorer takes at most {self.most_tokens:,} of this "
                f"model, whose values then take {format_bytes(MOST_RUN_BYTES)}. Shorten the prompt."
            )
        size = estimate_size(
            self.model.config,
            len(ids),
            has_target=request.target is not None,
            backward=request.backward,
            update=request.update,
            updates=request.steps,
        )
        for most, has in ((self._most_bytes, "the explorer holds at most"), (get_free_memory(), "there are")):
            if size.bytes > most:
                raise ResourceError(
                    f"the values of this run take {format_bytes(size.bytes)}, and {has} {format_bytes(most)}."
                    " Shorten the prompt, or omit the update or the gradients."
                )
        return ids, size

    def _trace(self, request: RunRequest, progress: TraceProgress, parent: str | None = None) -> Trace:
        """Runs the specification; only what reads an edit, where a trace of the same run is held."""
        assert self.model is not None and self.weights is not None
        more: dict[str, Any] = {"target": request.target, "backward": request.backward}
        if request.update:
            more |= {"update": request.update, "lr": request.lr, "steps": request.steps}
        if not request.edits:
            return self.model.trace(request.prompt, make_tape=progress.watch(Tape), **more)
        near = self._find_near(request, parent) or self._trace(replace(request, edits=()), progress)
        make_tape = partial(ReusingTape, near.tape, group_edits(near, request.edits), self.weights.copy)
        with np.errstate(all="ignore"):  # a given number may be of any size
            trace = self.model.trace(request.prompt, make_tape=progress.watch(make_tape), **more)
        if isinstance(trace.tape, ReusingTape):
            trace.tape.forget_previous()
        trace.run["edits"] = describe_edits(near, request.edits)
        return trace

    def _find_near(self, request: RunRequest, parent: str | None) -> Trace | None:
        """Returns a trace that is held of the same prompt and target and has all that is edited: the parent,
        else the newest."""
        inputs, edited = (request.prompt, request.target), {edit.name for edit in request.edits}
        with self._changing:
            near = {
                held.id: held.trace
                for held in self.traces.values()
                if held.request
                and (held.request.prompt, held.request.target) == inputs
                and edited <= held.trace.tape.values.keys()
            }
        return near.get(parent or "") or next(reversed(near.values()), None)

    def _hold(
        self,
        trace: Trace,
        request: RunRequest | None = None,
        parent: str | None = None,
        id: str | None = None,
        seconds: float = 0.0,
        steps_run: int = 0,
    ) -> HeldTrace:
        with self._changing:
            if id is None:
                self._count += 1
                id = f"t{self._count}"
            held = HeldTrace(id, trace, request, parent, seconds, steps_run)
            self.traces[id], self.summaries[id] = held, held.summary
            self._drop(held)
            self._forget()
            return held

    def _drop(self, kept: HeldTrace) -> None:
        """Drops the least recently used traces until the limits hold; those of files and `kept` stay."""
        droppable = [held for held in self.traces.values() if held.request and held is not kept]
        while droppable and (len(self.traces) > self._most_traces or self.count_bytes() > self._most_bytes):
            del self.traces[droppable.pop(0).id]

    def _forget(self) -> None:
        """Forgets the oldest traces until the limit holds; those that are held or edited in another stay."""
        needed = self.traces.keys() | {summary.parent for summary in self.summaries.values()}
        while len(self.summaries) > MOST_SUMMARIES:
            oldest = next((id for id in self.summaries if id not in needed), None)
            if oldest is None:
                return
            del self.summaries[oldest]

    def count_bytes(self) -> int:
        """Returns the bytes of all traces that are held, without the weights; what several share counts
        once."""
        buffers: dict[int, int] = {}
        for held in self.traces.values():
            buffers |= held.buffers
        shared = find_buffers(self.weights.arrays) if self.weights else {}
        return sum(size for owner, size in buffers.items() if owner not in shared)

    def get_trace(self, id: str | None) -> HeldTrace:
        """Returns the trace of an id, computed again where it was dropped; the newest where that is None."""
        if self.newest is None:
            raise UsageError("there is no trace yet: run a prompt first.")
        id = self.newest.id if id is None else id
        summary = self.summaries.get(id)
        if summary is None:
            raise UsageError(unknown("trace", id, list(self.summaries)))
        if held := self._find_held(id):
            return held
        assert summary.request is not None
        with self._computing:  # another thread may have computed it meanwhile
            return self._find_held(id) or self.compute(summary.request, summary.parent, id)

    def _find_held(self, id: str) -> HeldTrace | None:
        """Returns a trace that is held, which is then the most recently used; None where it was dropped."""
        with self._changing:
            held = self.traces.pop(id, None)
            if held is not None:
                self.traces[id] = held
            return held

    def get_unedited(self, held: HeldTrace) -> HeldTrace:
        """Returns the trace before the first edit: this one where it has none."""
        root = self._find_root(held.id)
        return held if root == held.id else self.get_trace(root)

    def get_original(self, held: HeldTrace, name: str) -> Array | None:
        """Returns a value as it was before the first edit; None where it still is that array, or where there
        was none of its shape. X.computed, what the formula of an edited X gives, was X."""
        if (unedited := self.get_unedited(held)) is held:
            return None
        value = held.trace.value(name)
        before = unedited.trace.tape.values.get(get_edited(held.trace, name) or name, value)
        is_alike = (before.shape, before.dtype) == (value.shape, value.dtype)
        return before if is_alike and before is not value else None

    def _find_root(self, id: str) -> str:
        """Returns the id before the first edit; those between need not be held."""
        while (parent := self.summaries[id].parent) is not None:
            id = parent
        return id

    def must_compute(self, id: Any) -> bool:
        """Returns whether the trace of an id, or the one before its edits, was dropped, so that a question
        about it takes as long as a run."""
        if id is None and self.newest is not None:
            id = self.newest.id
        if not isinstance(id, str) or id not in self.summaries:
            return False
        return id not in self.traces or self._find_root(id) not in self.traces

    def ask(self, question: str, /, **parameters: Any) -> Mapping[str, Any]:
        """Returns the answer to a question, as `question.ask` does."""
        return ask(self, question, parameters)
