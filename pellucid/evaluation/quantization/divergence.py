"""Divergence of two models at the same targets: log-likelihoods, KL divergence, and changed top tokens.

    KL(p ‖ q) = Σ_v p_v (ln p_v − ln q_v),    p of the reference, q of the other model

Log-probabilities are computed from the logits in float64, a few rows at a time.

And the first token at which the greedy text of a quantized model departs from that of its reference. Up to
that token both have the same text before them. So one greedy text, of the reference, is enough: each model
reads it once, and the texts depart at the first place where their most likely tokens differ.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.base.errors import ConfigError
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling

CHUNK = 1 << 19
"""Logits of each model that are compared at once: more leave the cache of a CPU, and are slower."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Divergence:
    """Arrays [N], a number for each target."""

    reference_nll: Floats
    """−ln p of the target."""
    nll: Floats
    """−ln q of the target."""
    kl: Floats
    """KL(p ‖ q) in nats."""
    reference_top: NDArray[np.int64]
    """The most likely token of the reference; of equally likely ones the smallest id."""
    top: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kl)

    @property
    def is_flip(self) -> NDArray[np.bool_]:
        """[N] whether the most likely token is another one."""
        return np.not_equal(self.reference_top, self.top)

    def select(self, rows: slice) -> "Divergence":
        """Returns the divergence of some of the targets."""
        return Divergence(*(getattr(self, one.name)[rows] for one in fields(self)))

    @classmethod
    def join(cls, parts: "Sequence[Divergence]") -> Self:
        """Returns the targets of all parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))


@torch.no_grad()
def compare_logits(reference: Tensor, other: Tensor, targets: Tensor) -> Divergence:
    """Returns the divergence of logits [N V] at targets [N]."""
    rows = max(CHUNK // reference.shape[-1], 1)
    parts = zip(reference.split(rows), other.split(rows), targets[:, None].split(rows), strict=True)
    return Divergence.join([_compare(*part) for part in parts])


def _compare(reference: Tensor, other: Tensor, targets: Tensor) -> Divergence:
    ours, theirs = (torch.log_softmax(logits.double(), -1) for logits in (reference, other))
    kl = (ours.exp() * (ours - theirs)).sum(-1)
    if not bool(torch.isfinite(kl).all()):
        raise ConfigError(
            "the bill cannot be computed: the logits of a model have a NaN or an infinity. `pellucid verify` "
            "finds where it comes from."
        )
    found = (-ours.gather(-1, targets)[:, 0], -theirs.gather(-1, targets)[:, 0], kl.clamp(min=0.0))
    tops = (reference.argmax(-1), other.argmax(-1))
    return Divergence(*(array.cpu().numpy() for array in (*found, *tops)))


NEW_TOKENS = 64
SLOTS = 8


@dataclass(frozen=True)
class GreedyText:
    """A greedy continuation of some tokens of a document."""

    document: str
    prompt: str
    n_tokens: int
    """Tokens of the continuation."""
    departs_at: int | None
    """The first token, from 0, that the quantized model has another one for; None where there is none."""
    reference_token: str | None
    """What the reference has there."""
    token: str | None


def find_departures(
    reference: Transformer,
    other: Transformer,
    prompts: Sequence[tuple[str, Sequence[int]]],
    show: Callable[[int], str],
    stop_ids: Collection[int] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[GreedyText, ...]:
    """Returns the greedy text of each prompt, given with its document's name, that has room for one token."""
    context = reference.config.context_length
    kept = [(name, list(ids)) for name, ids in prompts if len(ids) < context]
    if not kept:
        return ()
    requests = [
        Request(tuple(ids), Sampling(max_new_tokens=min(NEW_TOKENS, context - len(ids)))) for _, ids in kept
    ]
    capacity = max(len(one.prompt) + NEW_TOKENS for one in requests)
    engine = Engine(
        reference, stop_ids=stop_ids, slots=min(SLOTS, len(requests)), capacity=min(capacity, context)
    )
    handles = [engine.add(request, streams=False) for request in requests]
    found = list[GreedyText]()
    for (name, prompt), handle in zip(kept, handles, strict=True):
        progress(NEW_TOKENS * len(found), NEW_TOKENS * len(kept))
        continuation = list(handle.result()[0].ids)
        ids = torch.tensor([prompt + continuation[:-1]], device=reference.device)
        ours, theirs = (_most_likely(module, ids)[len(prompt) - 1 :] for module in (reference, other))
        departs = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=True)) if len(set(pair)) > 1), None
        )
        found.append(
            GreedyText(
                name,
                "".join(map(show, prompt)),
                len(continuation),
                departs,
                None if departs is None else show(ours[departs]),
                None if departs is None else show(theirs[departs]),
            )
        )
    return tuple(found)


@torch.no_grad()
def _most_likely(module: Transformer, ids: torch.Tensor) -> list[int]:
    """Returns the most likely next token after each of the ids [1 T]."""
    tokens: list[int] = module(ids)[0].argmax(-1).tolist()
    return tokens
