"""Checks `Transformer.forward_cached` as a caller in Python uses it: rows of unequal lengths, padded on the
right, and of each the logits of its last token alone."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.reduced import LAYERS, ReducedModel, gives_finite_logits
from pellucid.verification.verdict import Finding, Judged, Verdict

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


CHECKS = (
    Check(
        "unequal lengths",
        "Reading rows of unequal lengths gives each row's last token the logits that it has without a cache.",
        f"{TOLERANCE:.0e} of the largest logit in float64",
        measure_lengths,
        Judged.PROGRAM,
    ),
)
