"""Checks the shortcuts of the engine, which may not change a text: speculative decoding, with planted
proposals, right ones but for one, at each place of a text; and prompts whose beginning it has read before,
where the common beginning ends just before, at and just behind the border of a chunk."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.ledger.entry import SpeculativeStep
from pellucid.generation.request import Completion, Request
from pellucid.generation.samplers.chain import Chain
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK, Feed
from pellucid.generation.strategies.speculative import Draft, Proposal, Speculation
from pellucid.verification.checks.check import LAYERS, ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.sampling import NOT_FINITE
from pellucid.verification.verdict import Finding, Verdict

PROMPT, TOKENS, PROPOSED = 4, 24, 5
"""Tokens of the prompt, of each text, and of one proposal."""
VOCABULARY = 1024
BIDIRECTIONAL = "its mask is bidirectional over a prefix"
NATS = 1e-9
"""By which a log-probability may be off in float64."""


class PlantedProposals(Speculation):
    """Proposes to each request the tokens of a text of its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.slots, lookup=True, tokens=PROPOSED)
        self.texts: list[tuple[Chain, Sequence[int]]] = []

    def prepare(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            [text] = [text for chain, text in self.texts if chain is draft.state.chain]
            at = len(draft.state.new)
            if ids := text[at : at + min(draft.tokens, self.tokens)]:
                self.proposals[draft.slot] = Proposal("lookup", list(ids))


def measure_proposals(subject: Subject) -> Finding:
    """Generates a greedy text and a drawn one in float64, where rounding decides no token, then again with
    proposals, the greedy one once for every place at which one of them is wrong, the other for a third."""
    config = subject.config
    if config.mask.bidirectional_prefix:
        return Finding(Verdict.SKIPPED, BIDIRECTIONAL)
    new = min(TOKENS, config.context_length - PROMPT)
    if new < 3:
        return Finding(Verdict.SKIPPED, "its context has no room for proposed tokens")
    layers = 1 if subject.is_large else LAYERS
    model = ReducedModel(subject, layers=layers, vocabulary=VOCABULARY, context=PROMPT + TOKENS)
    if not Cache(model.config, 1, PROMPT + new, device="meta").can_rewind:
        return Finding(Verdict.SKIPPED, "its cache cannot forget a rejected token")
    if model.config.vocab_size < 2:
        return Finding(Verdict.SKIPPED, "its one token is never rejected")
    module = model.module(torch.float64)
    if not gives_finite_logits(module):
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    usual: dict[str, Any] = {"max_new_tokens": new, "stop_ids": (), "seed": 19}
    count = accepted = 0
    for sampling, places in (
        (Sampling(**usual), range(new)),
        (Sampling(**usual, temperature=1.0), range(0, new, 3)),
    ):
        request = Request(tuple(model.ids(PROMPT)), sampling, logprobs=True, top_logprobs=2)
        try:
            [plain] = generate_with_proposals(module, request, [()])
            planted = [plant_wrong(plain, at) for at in places]
            read = generate_with_proposals(module, request, planted)
        except PellucidError as error:
            return Finding(Verdict.BUG, "a request failed", "proposals", str(error))
        for at, text, proposed in zip(places, read, planted, strict=True):
            if bug := _find_wrong_proposal(plain, text, proposed, at):
                return replace(bug, message=f"{bug.message}.\nIn float64, with {sampling!r}.")
        count += len(read)
        accepted += sum(step.accepted for text in read for step in text.speculative)
    return Finding(
        Verdict.EQUAL,
        f"{count} texts of {new} tokens, {accepted:,} proposed ones accepted, a wrong one at each place",
    )


def plant_wrong(text: Completion, place: int) -> list[int]:
    """Returns the tokens of a text with the most probable other one at a place; the first token of a text is
    never proposed."""
    ids = list(text.ids)
    ids[place] = next(id for id, _ in text.top_logprobs[place] if id != ids[place])
    return ids


def generate_with_proposals(
    module: Transformer, request: Request, proposed: Sequence[Sequence[int]]
) -> list[Completion]:
    """Returns the text of a request as often as there are texts to propose; () proposes nothing."""
    capacity = len(request.prompt) + (request.sampling.max_new_tokens or 0)
    engine = Engine(module, slots=len(proposed), capacity=capacity)
    if any(proposed):
        engine.speculation = planted = PlantedProposals(engine)
    handles = [engine.add(request, streams=False) for _ in proposed]
    if any(proposed):
        planted.texts = [(one.strategy.job.chain, ids) for one, ids in zip(handles, proposed, strict=True)]
    return [handle.result()[0] for handle in handles]


def _find_wrong_proposal(
    plain: Completion, read: Completion, proposed: Sequence[int], wrong: int
) -> Finding | None:
    """Returns where a text with proposals, of which the one at place `wrong` is, is another one, or its steps
    are not those that it must take."""
    if plain.ids != read.ids:
        pairs = zip(plain.ids, read.ids, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(plain.ids), len(read.ids)))
        message = f"with a wrong proposal at place {wrong}: {list(read.ids)}; without any: {list(plain.ids)}"
        where = f"proposals.text[wrong={wrong},token={at}]"
        return Finding(Verdict.BUG, "another text", where, message)
    for at, (a, b) in enumerate(zip(plain.logprobs, read.logprobs, strict=True)):
        if not abs(a - b) <= NATS * max(1.0, abs(a)):
            message = f"with a wrong proposal at place {wrong}, ln p is {b:.10g}; without any, {a:.10g}"
            where = f"proposals.logprobs[wrong={wrong},token={at}]"
            return Finding(Verdict.BUG, f"{b:.6g} for {a:.6g}", where, message)
    steps = list(follow_steps(plain.ids, proposed))
    for got, step in zip(read.speculative, steps, strict=False):
        if got != step:
            message = f"a step says {got}; the text and its proposals make it {step}"
            where = f"proposals.accepted[wrong={wrong},token={step.step}]"
            return Finding(Verdict.BUG, f"{got.accepted} for {step.accepted}", where, message)
    if len(read.speculative) != len(steps):
        message = f"{len(read.speculative)} steps are recorded, and proposals are read in {len(steps)}"
        return Finding(Verdict.BUG, "other steps", f"proposals.steps[wrong={wrong}]", message)
    return None


def follow_steps(ids: Sequence[int], proposed: Sequence[int]) -> Iterator[SpeculativeStep]:
    """Yields the steps in which a text with these proposals is generated: each emits the proposals up to the
    first that is not the text's own token, and that token."""
    at = 1
    while at < len(ids) - 1:
        end = min(at + PROPOSED, len(ids) - 1)
        accepted = next((n for n in range(end - at) if ids[at + n] != proposed[at + n]), end - at)
        yield SpeculativeStep(at, "lookup", tuple(proposed[at:end]), accepted)
        at += accepted + 1


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
    engine, reused = Engine(module, slots=2, chunk=chunk), 0
    try:
        _read(engine, first)
        for shared in parted:  # the longest first, so that the one before has as much
            others = [(id + 1) % model.config.vocab_size for id in first[shared : shared + OWN]]
            prompt = [*first[:shared], *others]
            got, alone = _read(engine, prompt), _read(Engine(module, slots=2, chunk=chunk), prompt)
            if bug := _find_wrong_reuse(got, alone, shared, chunk):
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


def _find_wrong_reuse(got: ReadText, alone: ReadText, shared: int, chunk: int) -> Finding | None:
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
