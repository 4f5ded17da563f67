"""Checks that a prompt whose beginning the engine has read before gives the text that it gives alone, where
the common beginning ends just before, at and just behind the border of a chunk."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK, Feed
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.proposals import BIDIRECTIONAL
from pellucid.verification.checks.generation.reduced import LAYERS, ReducedModel, gives_finite_logits
from pellucid.verification.checks.generation.sampling import NOT_FINITE
from pellucid.verification.verdict import Finding, Judged, Verdict

NEW, OWN = 3, 2
"""New tokens, and tokens at the end of each prompt that no other one has."""
VOCABULARY = 1024
NATS = 1e-9
"""By which a log-probability may be off in float64."""


class ReadText(NamedTuple):
    """A text, and how many tokens the engine read for it."""

    text: Completion
    n_tokens: int


def measure_reuse(subject: Subject) -> Finding:
    """Reads prompts that share their beginning with the one before, in one engine and each in its own."""
    config = subject.config
    if config.mask.bidirectional_prefix:
        return Finding(Verdict.SKIPPED, BIDIRECTIONAL)
    chunk, borders = choose_borders(config.context_length, subject.is_large)
    if chunk < 2:
        return Finding(Verdict.SKIPPED, "its context has no room for two chunks of a prompt")
    longest = borders[0] + 1 + OWN
    layers = 1 if subject.is_large else LAYERS
    model = ReducedModel(subject, layers=layers, vocabulary=VOCABULARY, context=longest + NEW)
    if not Cache(model.config, 1, longest + NEW, device="meta").can_rewind:
        return Finding(Verdict.SKIPPED, "its cache cannot be cut to a shared beginning")
    if model.config.vocab_size < 2:
        return Finding(Verdict.SKIPPED, "its prompts are all the same")
    module = model.module(torch.float64)
    if not gives_finite_logits(module):
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    first = model.ids(longest)
    parted = list(dict.fromkeys(border + more for border in borders for more in (1, 0, -1)))
    engine, reused = _make_engine(module, chunk), 0
    try:
        _read(engine, first)
        for shared in parted:  # the longest first, so that the one before has as much
            others = [(id + 1) % model.config.vocab_size for id in first[shared : shared + OWN]]
            prompt = [*first[:shared], *others]
            got, alone = _read(engine, prompt), _read(_make_engine(module, chunk), prompt)
            if bug := _find_bug(got, alone, shared, chunk):
                return bug
            reused += alone.n_tokens - got.n_tokens
    except PellucidError as error:
        return Finding(Verdict.BUG, "a request failed", "prefix reuse", str(error))
    measured = f"{len(parted)} prompts, {reused:,} tokens reused in chunks of {chunk}"
    return Finding(Verdict.EQUAL, measured)


def choose_borders(context: int, is_large: bool) -> tuple[int, tuple[int, ...]]:
    """Returns the tokens of a chunk, the engine's own where the context holds one, and the borders near which
    prompts part, the last one first."""
    room = context - 1 - OWN - NEW
    chunk = CHUNK if room >= CHUNK else room // 2
    return chunk, (2 * chunk, chunk) if 2 * chunk <= room and not is_large else (chunk,)


def _make_engine(module: Transformer, chunk: int) -> Engine:
    return Engine(module, slots=2, chunk=chunk)


def _read(engine: Engine, prompt: Sequence[int]) -> ReadText:
    forward, counts = engine.slots.forward, list[int]()

    def count(feeds: Sequence[Feed]) -> torch.Tensor:
        counts.extend(feed.n_tokens for feed in feeds)
        return forward(feeds)

    usual: dict[str, Any] = {"max_new_tokens": NEW, "stop_ids": ()}
    engine.slots.forward = count  # type: ignore[method-assign]
    try:
        request = Request(tuple(prompt), Sampling(**usual), logprobs=True)
        [text] = engine.add(request, streams=False).result()
    finally:
        engine.slots.forward = forward  # type: ignore[method-assign]
    return ReadText(text, sum(counts))


def _find_bug(got: ReadText, alone: ReadText, shared: int, chunk: int) -> Finding | None:
    """Returns the first token that is another one, or has another probability, than without reuse."""
    about = f"after a prompt whose first {shared} tokens were read before, in chunks of {chunk}"
    pairs = zip(got.text.ids, alone.text.ids, got.text.logprobs, alone.text.logprobs, strict=True)
    for at, (id, other, one, right) in enumerate(pairs):
        if id != other or not abs(one - right) <= NATS * max(1.0, abs(right)):
            message = f"{about}, token {id} has ln p = {one:.10g}; read whole, token {other} has {right:.10g}"
            where = f"prefix reuse[shared={shared},token={at}]"
            return Finding(Verdict.BUG, f"{one:.6g} for {right:.6g}", where, message)
    if (taken := alone.n_tokens - got.n_tokens) > (most := shared - shared % chunk):
        message = f"{about}, {taken} tokens are taken from it; only {most} of them are in whole chunks"
        return Finding(Verdict.BUG, f"{taken} for {most}", f"prefix reuse.count[shared={shared}]", message)
    return None


CHECKS = (
    Check(
        "prefix reuse",
        "A text equals the one without reuse where prompts part before, at or behind the border of a chunk.",
        "tokens: 0; log-probabilities: 1e-9 in float64",
        measure_reuse,
        Judged.PROGRAM,
    ),
)
