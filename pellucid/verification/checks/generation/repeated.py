"""Checks that a model's numbers are the same when they are computed again: no dropout, no state that a run
leaves behind, and a text that depends on its prompt, its settings and its seed alone."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.dropouts import Bernoulli
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.reduced import ReducedModel, gives_finite_logits
from pellucid.verification.checks.generation.sampling import PROMPT
from pellucid.verification.verdict import Finding, Judged, Verdict

NEW, VOCABULARY, CHUNK = 4, 1024, 4
SEEDS = (1, 2, 3)
ALIGNED = 4
"""Numbers in 16 bytes of float32. The CPU's attention kernel adds in another order from other addresses, so
that heads of other sizes round by the slot that they lie in."""


def measure_repeated(subject: Subject) -> Finding:
    """Runs the whole model twice, and texts of its first blocks twice, alone and beside others."""
    found = (
        find_dropout(subject.model.module) or _find_active_dropout(subject) or _find_changed_logits(subject)
    )
    if found:
        return found
    config = subject.config
    if config.mask.bidirectional_prefix > config.context_length:
        return Finding(Verdict.EQUAL, "logits and scores are the same bits; it cannot generate")
    if config.context_length - max(1, int(config.mask.bidirectional_prefix)) < 1:
        return Finding(Verdict.EQUAL, "logits and scores are the same bits; no room for a text")
    notes = []
    for dtype in dict.fromkeys((torch.float32, getattr(torch, subject.model.dtype))):
        result = _compare_texts(subject, dtype)
        if isinstance(result, Finding):
            return result
        notes.append(result)
    return Finding(Verdict.EQUAL, "; ".join(["logits and scores are the same bits", *notes]))


def find_dropout(module: torch.nn.Module) -> Finding | None:
    """Returns the finding where a module is in training mode, in which dropout is active."""
    for name, part in module.named_modules():
        if part.training:
            message = "it is in training mode, in which dropout zeroes activations at random: call .eval()"
            return Finding(
                Verdict.BUG, f"{name or 'the model'} trains", f"dropout ({name or 'model'})", message
            )
    return None


def _find_active_dropout(subject: Subject) -> Finding | None:
    """Gives the first blocks dropout rates, which change nothing in evaluation."""
    model = ReducedModel(subject, vocabulary=VOCABULARY, context=PROMPT)
    ids = torch.tensor([model.ids(model.config.context_length)], device=subject.model.resolve_device())
    found = []
    for config in (model.config, _with_dropout(model.config)):
        module = Transformer.from_weights(config, model.weights, ids.device, torch.float32).eval()
        with torch.no_grad():
            found.append(module(ids))
    if same_bits(*found):
        return None
    message = "with dropout rates in its config the logits change in evaluation mode, where dropout is off"
    return Finding(Verdict.BUG, f"{_largest_change(*found):.2g}", "dropout", message)


def _with_dropout(config: ModelConfig) -> ModelConfig:
    try:
        return replace(config, dropout=Bernoulli(0.5, 0.5, 0.5, 0.5))
    except ConfigError:  # linear attention has no pattern to drop
        return replace(config, dropout=Bernoulli(0.5, 0.0, 0.5, 0.5))


def _find_changed_logits(subject: Subject) -> Finding | None:
    """Computes the logits and the scores of the whole model twice, with another text between."""
    model, ids = subject.model, subject.ids[:8]
    first = model.logits(ids)
    model.logits(ids[::-1])
    again = model.logits(ids)
    if not same_bits(first, again):
        message = "the same ids give other logits when they are computed again"
        return Finding(Verdict.BUG, f"{_largest_change(first, again):.2g}", "logits", message)
    scores = [torch.tensor(model.score(ids).logprobs[1:], dtype=torch.float64) for _ in range(2)]
    if not same_bits(*scores):
        return Finding(Verdict.BUG, "two scores", "score", "the same ids have other scores the second time")
    return None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two results are equal, NaN included."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _largest_change(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


# ---- texts


def _compare_texts(subject: Subject, dtype: torch.dtype) -> Finding | str:
    """Generates texts twice, and in another order and batch; returns a bug, or what is equal."""
    prefix = int(subject.config.mask.bidirectional_prefix)
    model = ReducedModel(subject, vocabulary=VOCABULARY, context=max(prefix, 3 * CHUNK) + NEW)
    context = model.config.context_length
    new = min(NEW, context - max(1, prefix))
    module, ids = model.module(dtype), model.ids(context)
    name = str(dtype).removeprefix("torch.")
    if not gives_finite_logits(module):
        return f"its logits in {name} are not finite"
    lengths = (max(1, prefix), max(1, prefix, (context - new) // 2), context - new)
    requests = [
        Request(tuple(ids[:length]), Sampling(temperature=1.0, seed=seed, max_new_tokens=new, stop_ids=()))
        for length, seed in zip(lengths, SEEDS, strict=True)
    ]
    first = [_generate(module, [request], slots=1)[0] for request in requests]
    for request, one, other in zip(
        requests, first, [_generate(module, [request], slots=1)[0] for request in requests], strict=True
    ):
        if one.ids != other.ids or one.logprobs != other.logprobs:
            return _describe(request, one, other, name, "again")
    turned = [*requests[1:], requests[0]]
    together = _generate(module, turned, slots=2)
    pairs = list(zip([*first[1:], first[0]], together, turned, strict=True))
    changed = [pair for pair in pairs if pair[0].ids != pair[1].ids or pair[0].logprobs != pair[1].logprobs]
    is_aligned = model.config.d_head % ALIGNED == 0
    if changed and dtype == torch.float32 and module.device.type == "cpu" and is_aligned:
        one, other, request = changed[0]
        return _describe(request, one, other, name, "beside other requests")
    note = "" if is_aligned else f" (heads of {model.config.d_head} numbers are not aligned)"
    return (
        f"{len(pairs) - len(changed)} of {len(pairs)} texts in {name} are the same bits beside others{note}"
    )


def _generate(module: Transformer, requests: Sequence[Request], slots: int) -> list[Completion]:
    engine = Engine(module, slots=slots, chunk=CHUNK, budget=CHUNK)
    handles = [engine.add(replace(request, logprobs=True), streams=False) for request in requests]
    return [handle.result()[0] for handle in handles]


def _describe(request: Request, one: Completion, other: Completion, dtype: str, when: str) -> Finding:
    at = f"generate(seed={request.sampling.seed}) {when}"
    message = (
        f"in {dtype}, a prompt of {len(request.prompt)} tokens and the seed {request.sampling.seed} give the "
        f"tokens {list(one.ids)} with ln p {_round(one)}; {when}, {list(other.ids)} with {_round(other)}"
    )
    return Finding(Verdict.BUG, "two texts" if one.ids != other.ids else "two log-probabilities", at, message)


def _round(text: Completion) -> list[float]:
    return [round(value, 6) for value in text.logprobs]


CHECKS = (
    Check(
        "repeated",
        "A second evaluation gives the same bits, and a seed gives the same text beside other requests.",
        "0, bit for bit",
        measure_repeated,
        Judged.MACHINE,
    ),
)
