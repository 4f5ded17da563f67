"""Checks that a model's numbers are the same when they are computed again: no dropout, no state that a run
leaves behind, and a text that depends on its prompt, its settings and its seed alone, of which every bit
counts: texts of seeds that differ in one bit differ, and each is the same text when it is drawn again."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import ConfigError, PellucidError
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.dropouts import Bernoulli
from pellucid.verification.checks.check import ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.sampling import NOT_FINITE, PROMPT, count_first, explain_no_room
from pellucid.verification.verdict import Finding, Verdict

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
    name = dtype_name(dtype)
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


SEED = 11
BITS = (0, 16, 31, 32, 33, 40, 52, 53, 62)
"""Of a seed, each the only one in which a seed differs from `SEED`; beyond 52, a float does not hold it."""
SEEDED_TOKENS = 256
CERTAIN = 1e9
"""Equally probable texts of which one is drawn: two are equal by chance no more often than once in these."""
TEMPERATURE = 1e6
"""The largest that may be given: it makes all tokens equally probable."""


def measure_seeds(subject: Subject) -> Finding:
    """Draws a text with each seed, all tokens nearly equally probable, twice."""
    config = subject.config
    if why := explain_no_room(config):
        return Finding(Verdict.SKIPPED, why)
    first = count_first(config)
    size = min(SEEDED_TOKENS, config.vocab_size)
    new = min(config.context_length - first, math.ceil(math.log(CERTAIN, max(size, 2))))
    model = ReducedModel(subject, layers=1, vocabulary=size, context=first + new)
    module, prompt = model.module(torch.float32), model.ids(first)
    if not gives_finite_logits(module):
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=new, stop_ids=())
    try:
        texts, again = (draw_texts(module, prompt, sampling) for _ in range(2))
    except PellucidError as error:
        return Finding(Verdict.BUG, "a request failed", "seeds", str(error))
    return judge_seeds(texts, again, size**new >= CERTAIN)


def draw_texts(module: Transformer, prompt: list[int], sampling: Sampling) -> dict[int, Completion]:
    """Returns the text of each seed, by the bit in which it differs from `SEED`; −1 is that seed itself."""
    capacity = len(prompt) + (sampling.max_new_tokens or 0)
    engine, handles = Engine(module, slots=len(BITS) + 1, capacity=capacity), {}
    for bit in (-1, *BITS):
        seeded = sampling.merge({"seed": SEED if bit < 0 else SEED ^ 1 << bit})
        handles[bit] = engine.add(Request(tuple(prompt), seeded, ledger=True), streams=False)
    return {bit: handle.result()[0] for bit, handle in handles.items()}


def judge_seeds(texts: dict[int, Completion], again: dict[int, Completion], is_certain: bool) -> Finding:
    """Returns what is wrong with two draws of each seed; where texts are few, numbers u alone must differ."""
    for bit, text in texts.items():
        seed = SEED if bit < 0 else SEED ^ 1 << bit
        numbers = [entry.u for entry in text.entries]
        if (again[bit].ids, [entry.u for entry in again[bit].entries]) != (text.ids, numbers):
            message = f"the seed {seed} gives {list(text.ids)}, then {list(again[bit].ids)}"
            return Finding(Verdict.BUG, "two texts", f"seeds[{seed}] again", message)
        if text.seed != seed or numbers != define_numbers(seed, len(numbers)):
            message = (
                f"a request with the seed {seed} says that it has used {text.seed}, and draws with u = "
                f"{numbers[:2]}; Philox gives {define_numbers(seed, 2)} for that seed"
            )
            return Finding(Verdict.BUG, "another u", f"seeds.u[bit={bit}]", message)
        if bit >= 0 and is_certain and text.ids == texts[-1].ids:
            message = (
                f"the seeds {SEED} and {seed}, which differ in bit {bit}, give one text: {list(text.ids)}"
            )
            return Finding(Verdict.BUG, "one text", f"seeds[bit={bit}]", message)
    what = "texts" if is_certain else "sequences of u"
    return Finding(Verdict.EQUAL, f"{len(texts)} {what}, {len(BITS)} of which differ in one bit of the seed")


def define_numbers(seed: int, count: int) -> list[float]:
    """Returns the numbers u of the first choice's tokens: the upper 53 bits of Philox4x64-10's first number
    for the key (seed, choice) and the counter of each token."""
    return [
        int(np.random.Philox(key=[seed, 0], counter=[at, 0, 0, 0]).random_raw() >> np.uint64(11)) * 2.0**-53
        for at in range(count)
    ]
