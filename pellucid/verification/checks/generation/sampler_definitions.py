"""The definitions of the samplers, written out once more in NumPy for one row of logits.

The engine and the tape of a ledger share their samplers (`parts/samplers/`), so that neither can show that a
formula there is wrong. Here each stands as `docs/generation.md` defines it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.reference.op import Array

SLACK = 1e-9
"""How far a cumulative probability or a bound may be off by rounding."""


@dataclass(frozen=True)
class TextSoFar:
    """What the next token's samplers may depend on; `slack` moves the bounds of those that cut."""

    prompt: Sequence[int]
    new: Sequence[int]
    stop_ids: Sequence[int] = ()
    slack: float = 0.0


Definition = Callable[[Array, Any, TextSoFar], Array]


def compute_probabilities(scores: Array) -> Array:
    """Returns e^s / Σ e^s of a row [V]."""
    exps = np.exp(scores - scores.max())
    return np.asarray(exps / exps.sum())


def _keep(scores: Array, kept: Array) -> Array:
    return np.where(kept, scores, -np.inf)


def _count(tokens: Sequence[int], size: int) -> Array:
    return np.bincount(np.asarray(tokens, int), minlength=size)


def _mark(tokens: Sequence[int], size: int) -> Array:
    return _count(tokens, size) > 0


def _repetition_penalty(scores: Array, penalty: float, text: TextSoFar) -> Array:
    seen = _mark([*text.prompt, *text.new], len(scores))
    return np.where(seen, np.where(scores > 0, scores / penalty, scores * penalty), scores)


def _add_bias(scores: Array, bias: dict[int, float], text: TextSoFar) -> Array:
    added = np.zeros(len(scores))
    for id, value in bias.items():
        added[id] = value
    return scores + added


def _min_new_tokens(scores: Array, least: int, text: TextSoFar) -> Array:
    return scores if len(text.new) >= least else _keep(scores, ~_mark(text.stop_ids, len(scores)))


def _forced_tokens(scores: Array, forced: Sequence[int], text: TextSoFar) -> Array:
    at = len(text.new)
    return scores if at >= len(forced) else _keep(scores, np.arange(len(scores)) == forced[at])


def _keep_mass(scores: Array, keys: Array, mass: float) -> Array:
    """Keeps the tokens with the largest keys, up to the one with which their probability reaches the mass."""
    probs, order = compute_probabilities(scores), np.argsort(-keys, kind="stable")
    before = np.cumsum(probs[order]) - probs[order]
    kept = np.zeros(len(scores), bool)
    kept[order[before < mass]] = True
    kept[order[0]] = True
    return _keep(scores, kept)


def _min_p(scores: Array, share: float, text: TextSoFar) -> Array:
    probs = compute_probabilities(scores)
    return _keep(scores, probs >= share * (1 + text.slack) * probs.max())


def _typical_p(scores: Array, mass: float, text: TextSoFar) -> Array:
    probs = compute_probabilities(scores)
    logs = np.log(np.maximum(probs, np.finfo(float).tiny))
    entropy = -(probs * logs).sum()
    typicality = np.where(scores > -np.inf, -np.abs(logs + entropy), -np.inf)
    return _keep_mass(scores, typicality, mass * (1 + text.slack))


DEFINITIONS: dict[str, Definition] = {
    "repetition_penalty": _repetition_penalty,
    "presence_penalty": lambda s, alpha, text: s - alpha * _mark(text.new, len(s)),
    "frequency_penalty": lambda s, beta, text: s - beta * _count(text.new, len(s)),
    "logit_bias": _add_bias,
    "banned_tokens": lambda s, banned, text: _keep(s, ~_mark(banned, len(s))),
    "min_new_tokens": _min_new_tokens,
    "forced_tokens": _forced_tokens,
    "temperature": lambda s, temperature, text: (s - s.max()) / temperature,
    "top_k": lambda s, k, text: _keep(s, s >= np.sort(s)[-min(k, len(s))]),
    "top_p": lambda s, mass, text: _keep_mass(s, s, mass * (1 + text.slack)),
    "min_p": _min_p,
    "typical_p": _typical_p,
}
"""By the name of the setting, in the order in which they are applied."""


def define_scores(logits: Array, sampling: Sampling, text: TextSoFar) -> Array:
    """Returns the scores [V] from which the next token is drawn, −∞ where one is removed."""
    scores = np.asarray(logits, float)
    for name, apply in DEFINITIONS.items():
        value = getattr(sampling, name)
        if value != DEFAULTS[name]:
            scores = apply(scores, value, text)
    return scores


def is_drawn(scores: Array, id: int, u: float) -> bool:
    """Returns whether a token is the first, in order of score, whose cumulative probability exceeds u.

    The order of tokens whose scores are equal within rounding is free.
    """
    if scores[id] == -np.inf:
        return False
    probs, near = compute_probabilities(scores), 1e-12 * (1 + abs(scores[id]))
    before, reached = probs[scores > scores[id] + near].sum(), probs[scores >= scores[id] - near].sum()
    return bool(before - SLACK <= u <= reached + SLACK)


def explains_draw(logits: Array, sampling: Sampling, text: TextSoFar, id: int, u: float | None) -> bool:
    """Returns whether the definitions give this token for u, or for None the largest score."""
    for slack in (0.0, SLACK, -SLACK):
        near = TextSoFar(text.prompt, text.new, text.stop_ids, slack)
        scores = define_scores(logits, sampling, near)
        if u is None and int(scores.argmax()) == id:
            return True
        if u is not None and is_drawn(scores, id, u):
            return True
    return False
