"""Checks what `Model.generate` and `Model.score` say of a text, by the whole model: every other check of
generation runs its first blocks.

The nats by which a log-probability may be off are what an uncached run's own sums cost, and not more than a
part of the largest logit, so that no fault of the run that is judged widens what it is allowed.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from pellucid.base.dtypes import dtype_name
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.transformer import Transformer
from pellucid.generation.decoders import Decoder, make_decoder
from pellucid.generation.generate import make_engine
from pellucid.generation.request import Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.native import list_threads
from pellucid.verification.verdict import Finding, Verdict

TIMES = 16.0
"""The multiple of the error of an uncached run in the same type by which a log-probability may be off."""
FLOORS = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Nats that are always allowed, where the uncached run happens to be exact."""
CEILINGS = {torch.float64: 1e-8, torch.float32: 1e-3}
"""Nats that are allowed at most, as a part of the largest logit: 0.01 nats in float32 where it is 10. Healthy
random models in float32 are off by up to 1e-5 of it, those with weights × 10 by 1e-4; a run in 16 bits may be
off by all of it, and is bounded by the same code's run in float32."""
ROUNDED = 2e-2
"""The same where a decoder in float32 rounds keys and values to 16 bits: it is off by up to 2e-3 of it."""
LEAST_LOGIT = 10.0
"""The largest logit is taken to be this at least."""


def limit_error(
    dtype: torch.dtype, error: float, largest: float, cache_dtype: torch.dtype | None = None
) -> float:
    """Returns the nats by which a log-probability may be off in a type: 16 times the error of an uncached
    run, which says what this model's sums cost, and not more than `CEILINGS` of the largest logit."""
    part = CEILINGS.get(dtype, math.inf)
    if cache_dtype not in (None, dtype) and part < ROUNDED:
        part = ROUNDED
    return max(FLOORS[dtype], min(TIMES * error, part * max(largest, LEAST_LOGIT)))


def log_softmax(logits: Array) -> Array:
    """Returns the log-probabilities of logits [… V]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


WHOLE = 12
"""Tokens of the prompt that is read by the whole model."""


def judge_whole(subject: Subject) -> Finding:
    """Compares the whole model's log-probabilities of a text, whose last tokens are forced, by the engine
    that `Model.generate` makes and by `Model.score`, with those of the specification; and those of a compiled
    decoder on each number of threads. What is allowed comes from the module in one uncached pass; of a
    decoder that rounds keys and values, from the module with a cache that does; where that alone is off by
    more than can be allowed, nothing can be said of such a decoder."""
    model, ids = subject.model, subject.ids
    prefix = int(subject.config.mask.bidirectional_prefix)
    new = min(3, subject.config.context_length - max(prefix, 1))
    prompt = ids[: max(prefix, min(WHOLE, subject.config.context_length - new))]
    new = min(new, len(ids) - len(prompt))
    if len(prompt) < 2 or len(prompt) < prefix or new < 1:
        return Finding(Verdict.SKIPPED, "the whole model has no room for a text")
    whole = ids[: len(prompt) + new]
    forced = tuple(whole[len(prompt) :])
    sampling = Sampling(max_new_tokens=new, temperature=0.9, seed=3, stop_ids=(), forced_tokens=forced)
    request = Request(tuple(prompt), sampling, logprobs=True, prompt_logprobs=True)
    if not bool(model.logits(prompt).isfinite().all()):
        return Finding(Verdict.SKIPPED, f"the whole model's logits in {model.dtype} are not finite")
    handle = make_engine(model, [request], {}).add(request)
    [text] = handle.result()
    decoder, dtype = make_decoder(model), model.module.dtype
    logits = subject.program["logits"][0][: len(whole) - 1]
    wanted, largest = _pick(logits, whole), float(np.abs(logits).max())
    runs: dict[str, tuple[torch.dtype, Sequence[float]]] = {
        "generate": (decoder.cache_dtype, [*handle.prompt_logprobs, *text.logprobs]),
        "score": (dtype, [value or 0.0 for value in model.score(whole).logprobs[1:]]),
    }
    for threads in list_threads() if isinstance(decoder, NativeDecoder) else ():
        assert isinstance(decoder, NativeDecoder)
        decoder.threads = threads
        read = _pick(_read_at_once(decoder, whole[:-1], decoder.cache_dtype), whole)
        runs[f"generate[threads={threads}]"] = decoder.cache_dtype, read.tolist()
    notes, errors = [], dict[torch.dtype, float]()
    for which, (cache_dtype, values) in runs.items():
        if cache_dtype not in errors:
            read_as = None if cache_dtype == dtype else cache_dtype
            plain = _pick(_read_at_once(model.module, whole[:-1], read_as), whole)
            errors[cache_dtype] = float(np.abs(plain - wanted).max())
        allowed, worst = limit_error(dtype, errors[cache_dtype], largest, cache_dtype), 0.0
        if cache_dtype != dtype and errors[cache_dtype] > allowed:
            name = dtype_name(cache_dtype)
            notes.append(f"keys in {name} move its own log-probabilities by {errors[cache_dtype]:.2g}")
            continue
        for at, (got, right) in enumerate(zip(values, wanted, strict=True), start=1):
            worst = max(worst, abs(got - right))
            if not abs(got - right) <= allowed:
                message = f"ln p of token {whole[at]} is {got:.8g}; an uncached pass gives {right:.8g}"
                where = f"Model.{which}" if "[" in which else f"Model.{which}[token={at}]"
                return Finding(Verdict.BUG, f"{got:.6g} for {right:.6g}", where, message)
        notes.append(f"{worst / allowed:.0%} of {allowed:.1e}")
    return Finding(Verdict.NOISE, f"{', '.join(dict.fromkeys(notes))} in the whole model")


def _pick(logits: Array, whole: Sequence[int]) -> Array:
    """Returns the log-probabilities of the tokens of a text after its first, from the logits before them."""
    return np.asarray(log_softmax(logits)[np.arange(len(whole) - 1), whole[1:]])


def _read_at_once(decoder: Decoder, ids: list[int], cache_dtype: torch.dtype | None) -> Array:
    """Returns the logits [T V] of one pass over a text, uncached or into a cache of a type."""
    with torch.no_grad():
        if cache_dtype is None:
            assert isinstance(decoder, Transformer)
            logits = decoder(torch.tensor([ids], device=decoder.device))[0]
        else:
            cache = Cache(decoder.config, 1, len(ids), dtype=cache_dtype, device=decoder.device)
            reads_one = cache.ring is not None and isinstance(decoder, Transformer)
            parts = [[id] for id in ids] if reads_one else [ids]  # a ring rounds what later calls read
            logits = torch.cat([decoder.forward_packed([(cache, part)], range(len(part))) for part in parts])
    return np.asarray(logits.double().cpu().numpy())
