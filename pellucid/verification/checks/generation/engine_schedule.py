"""Requests that take the engine through everything that it does with texts: prompts in several chunks, texts
that join and leave, several choices, shared prefixes, slots that held another text, beams, a full context,
proposed tokens, and steps over all slots at once."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.handle import Handle
from pellucid.generation.request import Completion, Request, Token, read_request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK
from pellucid.verification.checks.check import ReducedModel

NEW, SHORT_CHUNK, KEEP = 4, 4, 2
SAMPLED: dict[str, Any] = {"temperature": 1.3, "seed": 5}
SLOTS = 4
MOST_STEPS = 200
"""Steps after which an engine has failed; a schedule takes about 30."""


@dataclass(frozen=True)
class Generated:
    """A request that was run, named by what it exercises, and what the engine said of it."""

    feature: str
    request: Request
    context_length: int
    texts: Sequence[Completion]
    prompt_logprobs: Sequence[float] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    """Of its engine, so that it can be run again alone."""


@dataclass(frozen=True)
class Joining:
    """A request that joins the engine at a step."""

    step: int
    feature: str
    request: Request


@dataclass(frozen=True)
class Lengths:
    """Lengths of prompts by the chunks in which they are read; 0 where the context is too short."""

    new: int
    chunk: int
    one: int
    two: int
    three: int

    @classmethod
    def choose(cls, context: int, prefix: int) -> "Lengths":
        """Returns lengths that leave room for new tokens, and hold the bidirectional prefix of a mask."""
        least = max(1, prefix)
        new = min(NEW, context - least)
        most = context - new
        chunk = max(1, min(SHORT_CHUNK, (most - least) // 2))
        border = max(chunk, prefix)
        two, three = border + max(1, chunk - 1), border + 2 * chunk
        return cls(new, chunk, max(least, border - 1), two * (two <= most), three * (three <= most))


class EngineRuns:
    """Runs of one module in one type."""

    def __init__(self, model: ReducedModel, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        self.prefix = int(model.config.mask.bidirectional_prefix)
        self.lengths = Lengths.choose(model.config.context_length, self.prefix)
        self.module = model.module(dtype)
        self.ids = model.ids(max(model.config.context_length, 64))
        cache = Cache(model.config, 1, model.config.context_length, device="meta")
        self.can_rewind = cache.can_rewind
        """Whether prefixes can be shared, and proposed tokens removed again."""

    def make_request(self, prompt: Sequence[int], new: int | None = None, **more: Any) -> Request:
        extra = {name: more.pop(name) for name in ("prompt_logprobs",) if name in more}
        usual: dict[str, Any] = {"stop_ids": (), "max_new_tokens": self.lengths.new if new is None else new}
        return Request(tuple(prompt), Sampling(**(usual | more)), logprobs=True, **extra)

    def run_all(self, stop: int) -> Iterator[Generated]:
        """Yields every request, the simplest first; `stop` is a token that may end a beam."""
        if self.lengths.new > 0:
            yield from self.run_together(stop)
            yield self.run_stream()
            yield from self.run_static()
            yield from self.run_proposals()
            yield from self.run_whole_chunk()
        yield from self.run_full_context()

    # ---- many at once

    def run_together(self, stop: int) -> Iterator[Generated]:
        """Yields requests that join one after the other and share four slots."""
        settings: dict[str, Any] = {
            "slots": SLOTS,
            "chunk": self.lengths.chunk,
            "budget": 2 * self.lengths.chunk,
        }
        yield from self.run(self.module, settings, list(self._plan_together(stop)))

    def _plan_together(self, stop: int) -> Iterator[Joining]:
        ids, found, ask = self.ids, self.lengths, self.make_request
        yield Joining(0, "one chunk", ask(ids[: found.one]))
        if found.two:
            yield Joining(0, "prefill chunk 2", ask(ids[: found.two], **SAMPLED))
        if found.three:
            yield Joining(1, "prefill chunk 3", ask(ids[: found.three], prompt_logprobs=True))
        yield Joining(2, "choices", ask(ids[1 : 1 + found.one], n=3, **SAMPLED))
        yield Joining(4, "reused slot", ask(ids[: found.one][::-1], **SAMPLED))
        if found.three and self.can_rewind:
            border = found.three - found.chunk
            others = [(id + 1) % self.model.config.vocab_size for id in ids[border : found.three]]
            shared = [*ids[:border], *others]
            yield Joining(3, "reused prefix", ask(shared))
        if self.model.config.vocab_size > 2:
            settings: dict[str, Any] = {"beams": 3, "n": 3, "length_penalty": 0.5, "stop_ids": (stop,)}
            yield Joining(5, "beams", ask(ids[: found.one], **settings))

    def run_static(self) -> Iterator[Generated]:
        """Yields texts that are decoded over all slots at once, as on a GPU; the first one ends early, so
        that the others are not in the first slots."""
        lengths = (self.lengths.one, self.lengths.two or self.lengths.one, self.lengths.one)
        planned = [
            Joining(at, "static slots", self.make_request(self.ids[:length], new, **more))
            for at, (length, new, more) in enumerate(
                zip(lengths, (1, None, None), ({}, {}, SAMPLED), strict=True)
            )
        ]
        settings: dict[str, Any] = {"slots": 3, "chunk": self.lengths.chunk, "is_static": True}
        yield from self.run(self.module, settings, planned)

    def run_whole_chunk(self) -> Iterator[Generated]:
        """Yields a text after a prompt that is longer than a chunk of the engine's own size."""
        if self.model.config.context_length < CHUNK + 2 * NEW:
            return
        prompt = self.ids[: CHUNK + 3]
        one = Joining(
            0, f"prefill chunk 2 of {CHUNK} tokens", self.make_request(prompt, 2, prompt_logprobs=True)
        )
        yield from self.run(self.module, {"slots": 1}, [one])

    # ---- one at a time

    def run_stop(self, stop: int) -> Generated:
        """Returns a text like the first one, which `stop`, one of that text's tokens, ends."""
        request = self.make_request(self.ids[: self.lengths.one], stop_ids=(stop,))
        settings: dict[str, Any] = {"slots": 1, "chunk": self.lengths.chunk}
        [found] = self.run(self.module, settings, [Joining(0, "stop token", request)])
        return found

    def run_stream(self) -> Generated:
        """Returns a request as a server makes it: read from JSON, run by the engine's own thread, and read
        token by token."""
        sampling = {"max_new_tokens": self.lengths.new, "stop_ids": [], **SAMPLED}
        table = {"prompt": self.ids[: self.lengths.one], "sampling": sampling, "logprobs": True}
        request = read_request(json.loads(json.dumps(table)))
        settings: dict[str, Any] = {"slots": 1, "chunk": self.lengths.chunk}
        with Engine(self.module, **settings) as engine:
            tokens: list[Token] = list(engine.add(request))
        ids, logprobs = tuple(token.id for token in tokens), tuple(token.logprob or 0.0 for token in tokens)
        text = Completion(0, ids, "", tokens[-1].finish or "", logprobs)
        return Generated("stream", request, self.model.config.context_length, [text])

    def run_proposals(self) -> Iterator[Generated]:
        """Yields texts for which tokens are proposed: by look-up, where forced tokens are those that followed
        in the prompt and then another, and by a draft model with one block."""
        if self.prefix or not self.can_rewind:
            return
        most = self.model.config.context_length - self.lengths.new
        prompt, forced = (self.ids[:3] * 4)[:most], [self.ids[at] for at in (0, 1, 0)]
        draft = self.model.module(self.dtype, layers=1)
        repeats: dict[str, Any] = {"forced_tokens": forced[: self.lengths.new]}
        for feature, settings, more in (
            ("lookup", {"lookup": True}, repeats),
            ("draft", {"draft": draft}, {}),
        ):
            planned = [Joining(0, feature, self.make_request(prompt, **more, **how)) for how in ({}, SAMPLED)]
            yield from self.run(self.module, {"slots": 2, "chunk": self.lengths.chunk, **settings}, planned)

    def run_full_context(self) -> Iterator[Generated]:
        """Yields texts that are longer than the context."""
        context = min(self.model.config.context_length, max(10, self.prefix + 2))
        module = self.model.module(self.dtype, context=context)
        prompt = self.ids[: max(context - 2, self.prefix, 1)]
        rules: list[dict[str, Any]] = [{"context": "crop"}]
        if context > KEEP + 1:
            rules.append({"context": "roll", "keep": KEEP})
        for more in rules:
            request = self.make_request(prompt, context // 2 + 5, **more)
            settings: dict[str, Any] = {"slots": 1, "chunk": self.lengths.chunk}
            yield from self.run(module, settings, [Joining(0, str(more["context"]), request)])

    def run(
        self, module: Transformer, settings: dict[str, Any], planned: Sequence[Joining]
    ) -> Iterator[Generated]:
        """Runs requests in one engine, each from its step on."""
        engine, step = Engine(module, **settings), 0
        handles: dict[int, Handle] = {}
        while len(handles) < len(planned) or not all(handle.is_done for handle in handles.values()):
            if step > MOST_STEPS:
                names = ", ".join(planned[at].feature for at, one in handles.items() if not one.is_done)
                raise PellucidError(f"{names}: the engine does not end its texts in {step} steps.")
            for at, one in enumerate(planned):
                if one.step == step:
                    handles[at] = engine.add(one.request, streams=False)
            engine.step()
            step += 1
        context = module.config.context_length
        for at, one in enumerate(planned):
            texts, prompt_logprobs = handles[at].result(), handles[at].prompt_logprobs
            yield Generated(
                one.feature, one.request, context, texts, prompt_logprobs, tuple(settings.items())
            )

    def run_alone(self, one: Generated) -> Generated:
        """Runs a request again, with nothing beside it, in an engine that has not run before."""
        module = self.model.module(self.dtype, context=one.context_length)
        [again] = self.run(module, dict(one.settings), [Joining(0, one.feature, one.request)])
        return again
