"""Checks speculative decoding with planted proposals: right ones but for one, at each place of a text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.ledger.entry import SpeculativeStep
from pellucid.generation.request import Completion, Request
from pellucid.generation.samplers.chain import Chain
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.strategies.speculative import Draft, Proposal, Speculation
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.reduced import LAYERS, ReducedModel, gives_finite_logits
from pellucid.verification.checks.generation.sampling import NOT_FINITE
from pellucid.verification.verdict import Finding, Judged, Verdict

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
            if bug := _find_bug(plain, text, proposed, at):
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


def _find_bug(plain: Completion, read: Completion, proposed: Sequence[int], wrong: int) -> Finding | None:
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


CHECKS = (
    Check(
        "proposals",
        "A text with proposed tokens, a wrong one at each place, equals the text without any.",
        "tokens: 0; log-probabilities: 1e-9 in float64",
        measure_proposals,
        Judged.PROGRAM,
    ),
)
