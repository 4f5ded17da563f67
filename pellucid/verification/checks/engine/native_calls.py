"""Calls of the compiled decoder that must have the bits of others: two texts in one call, and steps whose
threads it chooses by itself."""

import torch

from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.cpu.threads import PROBE_AFTER
from pellucid.verification.checks.check import Subject
from pellucid.verification.verdict import Finding, Verdict

CHOICES = PROBE_AFTER + 8
"""Steps after which a decoder has chosen its threads, and tried the others again."""


def judge_together(subject: Subject, decoder: NativeDecoder) -> Finding | None:
    """Returns a finding where two texts that one call reads have other logits than each alone; both pass a
    window of the model, where it is small."""
    room = min(subject.length + 1, subject.config.context_length)
    texts = subject.make_ids(room, seed=1), subject.make_ids(max(room - 2, 1), seed=2)
    if decoder.config.mask.bidirectional_prefix > len(texts[1]):
        return None

    def make_rows() -> list[tuple[Cache, list[int]]]:
        return [(Cache(decoder.config, 1, room, dtype=decoder.cache_dtype), ids) for ids in texts]

    apart = torch.cat([decoder.forward_packed([row], range(len(row[1]))) for row in make_rows()])
    together = decoder.forward_packed(make_rows(), range(sum(map(len, texts))))
    if torch.equal(apart, together):
        return None
    at = int((apart != together).any(-1).nonzero()[0])
    message = f"two texts of {len(texts[0])} and {len(texts[1])} tokens in one call have other logits at "
    message += f"place {at} than each in a call of its own."
    return Finding(Verdict.BUG, "other bits", "logits[texts=2]", message)


def judge_chosen(decoder: NativeDecoder, choosing: NativeDecoder) -> Finding | None:
    """Returns a finding where a decoder that chooses its threads by itself has other logits, before it tries
    the slower number once more or then."""
    if decoder.config.mask.bidirectional_prefix > 1:
        return None

    def decode(one: NativeDecoder) -> torch.Tensor:
        return one.forward_packed([(Cache(one.config, 1, 1, dtype=one.cache_dtype), [0])], [0])

    wanted = decode(decoder)
    for step in range(CHOICES):
        if not torch.equal(decode(choosing), wanted):
            message = (
                f"the decoder that chooses its threads has other logits at step {step} than on one thread."
            )
            return Finding(Verdict.BUG, "other bits", "logits[threads=chosen]", message)
    return None
