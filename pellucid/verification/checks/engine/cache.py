"""Checks the cache as a caller in Python uses it: rows of unequal lengths, padded on the right, and of each
the logits of its last token alone; and in int8, where each key and value is off by half of a quantization
step at most, attention follows from what the cache holds, and what that costs the prediction."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.layer_cache import SlotCache
from pellucid.engine.recording import Recording
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.explanation.engines import applied_weights
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import LAYERS, ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.engine.paths import NO_CACHE
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.run_report import RunReport
from pellucid.verification.verdict import Finding, Verdict

TOKENS, LEAST = 12, 4
"""Tokens of the longest row, and of the shortest in which rows of a call can differ."""
VOCABULARY = 1021
TOLERANCE = 1e-9
"""Of the largest logit, in float64."""


def measure_lengths(subject: Subject) -> Finding:
    """Reads three rows in three calls, with and without `last_only`, and each row whole without a cache."""
    config = subject.config
    if config.mask.bidirectional_prefix:
        return Finding(Verdict.SKIPPED, "its mask is bidirectional over a prefix")
    count = min(TOKENS, config.context_length)
    if count < LEAST:
        return Finding(Verdict.SKIPPED, "its context has no room for rows of unequal lengths")
    layers = 1 if subject.is_large else LAYERS
    model = ReducedModel(subject, layers=layers, vocabulary=VOCABULARY, context=count)
    module = model.module(torch.float64)
    if not gives_finite_logits(module):
        return Finding(Verdict.SKIPPED, "its logits are not finite")
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (3, count))
    calls = [(count - 2, (count - 1) // 2, 1), (1, 2, 1), (1, 1, 1)]
    worst, compared = 0.0, 0
    with torch.no_grad():
        own = [module(torch.from_numpy(row[None]).to(module.device))[0].double().cpu().numpy() for row in ids]
        for last_only in (True, False):
            ends = np.cumsum(calls, 0)
            for call, rows in enumerate(read_rows(module, ids, calls, last_only)):
                for row, logits in enumerate(rows):
                    wanted = own[row][ends[call][row] - 1]
                    error = float(np.abs(logits - wanted).max() / np.abs(wanted).max(initial=1e-300))
                    if not error <= TOLERANCE:
                        return _describe(calls[call], call, row, last_only, logits, wanted)
                    worst, compared = max(worst, error), compared + 1
    return Finding(Verdict.EQUAL, f"{worst:.1e} of the logits of {compared} last tokens")


def read_rows(
    module: Transformer, ids: Array, calls: Sequence[Sequence[int]], last_only: bool
) -> Iterator[list[Array]]:
    """Yields the logits [V] of each row's last token after every call; the last call is given no lengths."""
    cache = Cache(module.config, len(ids), ids.shape[1], dtype=module.dtype, device=module.device)
    at = np.zeros(len(ids), int)
    for number, lengths in enumerate(calls):
        width = max(lengths)
        given = (at[:, None] + np.arange(width)) % ids.shape[1]  # padding is some other token
        tokens = torch.from_numpy(np.take_along_axis(ids, given, 1)).to(module.device)
        given_lengths = None if number == len(calls) - 1 else list(lengths)
        logits: Tensor = module.forward_cached(tokens, cache, given_lengths, last_only)
        found = logits.double().cpu().numpy()
        yield [
            rows[0] if last_only else rows[length - 1] for rows, length in zip(found, lengths, strict=True)
        ]
        at += lengths


def _describe(
    lengths: Sequence[int], call: int, row: int, last_only: bool, got: Array, wanted: Array
) -> Finding:
    at = int(np.abs(got - wanted).argmax())
    message = (
        f"forward_cached of rows of {', '.join(map(str, lengths))} tokens gives the logit {got[at]:.8g} of "
        f"token {at} after row {row}; without a cache it is {wanted[at]:.8g}"
    )
    where = f"forward_cached[last_only={last_only},call={call},row={row}]"
    return Finding(Verdict.BUG, f"{got[at]:.6g} for {wanted[at]:.6g}", where, message)


MEAN, WORST = 0.05, 0.5
"""Nats, of the KL divergence beyond which the finding advises a wider type. That is not a bug: extreme
weights make keys of very different sizes, which 8 bits cannot hold."""
STEPS_ALLOWED = 0.5 + 1e-3
"""Steps of quantization that rounding explains; the scale itself is rounded to float32."""


def measure_int8_cache(subject: Subject) -> Finding:
    """Reads half of the text into an int8 cache, then the other half, which attends to it."""
    subject = subject.excerpt
    ids = subject.make_ids(subject.length)
    half = max(1, len(ids) // 2)
    if subject.config.mask.bidirectional_prefix > half:
        return Finding(Verdict.SKIPPED, NO_CACHE)
    if not isinstance(Cache(subject.config, 1, 1).layers[0], SlotCache):
        return Finding(Verdict.SKIPPED, "its cache is a running sum and holds no keys")
    if len(ids) == half:
        return Finding(Verdict.SKIPPED, "its context has no room for a token after another")
    module = subject.module(torch.float32)
    with torch.no_grad():
        full, _ = _read(module, ids, half, torch.float32)
        int8, seen = _read(module, ids, half, torch.int8)
    if (wrong := _find_wrong_step(seen)) is not None:
        return wrong
    if subject.config.mask.visible_past is None:  # a ring holds its keys in another order
        report = _judge_attention(subject, module, ids[half:], seen)
        if not report:
            return report.summarize()
    kl = (full.exp() * (full - int8)).sum(-1)
    mean, worst = float(kl.mean()), float(kl.max())
    measured = f"KL {mean:.1e} nats, {worst:.1e} at worst, {len(ids) - half} tokens"
    if part := subject.describe_excerpt():
        measured += f"; {part}"
    if not (mean <= MEAN and worst <= WORST):  # NaN as well
        measured += ": int8 is too narrow for the keys or values of this model; use a wider cache type"
    return Finding(Verdict.NOISE, measured)


def _read(module: Transformer, ids: list[int], half: int, dtype: torch.dtype) -> tuple[Tensor, Recording]:
    """Returns the log-probabilities [T V] after the second half of the ids, and what that call computed."""
    cache = Cache(module.config, 1, len(ids), dtype=dtype, device=module.device)
    module.forward_cached(torch.tensor([ids[:half]], device=module.device), cache)
    with record(fused=True, model=module) as seen:
        logits = module.forward_cached(torch.tensor([ids[half:]], device=module.device), cache)
    return torch.log_softmax(logits[0].double(), -1), seen


def _find_wrong_step(seen: Recording) -> Finding | None:
    """Returns BUG at a layer whose new keys or values are off by more than half of a step, max|x| / 127."""
    for name, cached in seen.items():
        if not name.endswith((".k_all", ".v_all")):
            continue
        own = name.removesuffix("_all")
        given = next(seen[key] for key in (f"{own}_rot", f"{own}_normed", own) if key in seen).double()
        new = cached[:, :, -given.shape[2] :].double()
        step = (given.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
        if (off := float(((new - given).abs() / step).max())) > STEPS_ALLOWED:
            message = f"a cached number is off by {off:.2f} quantization steps; rounding explains 0.5 at most"
            return Finding(Verdict.BUG, f"{off:.2f} steps", name, message)
    return None


def _judge_attention(subject: Subject, module: Transformer, ids: list[int], seen: Recording) -> RunReport:
    """Judges z by the keys and values that the cache returned."""
    recorded = {name: RecordedValue(value.double().cpu().numpy(), "float32") for name, value in seen.items()}
    count = len(ids)
    past = {
        f"{name.removesuffix('_all').rpartition('.')[0]}.past_{name[-5]}": value.value[:, :, :-count]
        for name, value in recorded.items()
        if name.endswith((".k_all", ".v_all"))
    }
    tape = forward(module.config, applied_weights(module), [ids], past=past)
    known = {name: value for name, value in recorded.items() if name in tape and name != "mask"}
    return judge_run(subject.trace(tape, ids), known, only="*.z", rounds_once=True)
