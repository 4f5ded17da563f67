"""The definitions of the samplers, and of the figures that come with a token, written out once more in NumPy
for one row of logits.

The engine and the tape of a ledger share their samplers (`parts/samplers/`); the engine, the ledger and the
server share one computation of the figures (`samplers/own_probabilities.py`, `samplers/drawn_token.py`). So
none of them can show that a formula there is wrong. Here each stands as `docs/generation.md` and its field
define it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


TOLERANCE = 1e-9
"""Of a figure, relative to the larger of itself and 1: both are computed in float64."""


def define_logprobs(logits: Array) -> Array:
    """Returns ln softmax of a row [V]."""
    shifted = np.asarray(logits, float) - np.max(logits)
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def define_entropy(logits: Array) -> float:
    """Returns −Σ p ln p of a row [V], in nats; a token with p = 0 adds nothing."""
    probs = compute_probabilities(np.asarray(logits, float))
    some = probs[probs > 0]
    return -float((some * np.log(some)).sum())


def define_rank(logits: Array, id: int) -> int:
    """Returns how many tokens come before one: a larger logit, or the same one and a smaller id."""
    return int(np.lexsort((np.arange(len(logits)), -logits)).tolist().index(id))


def find_wrong_top(
    top: Sequence[tuple[int, float]], logits: Array, count: int, least: float = -np.inf
) -> str:
    """Returns what is wrong with a list of the most probable tokens and their ln p, of which none is below
    `least`; "" where nothing is.

    Of tokens that are equally probable within rounding, any may stand before the other.
    """
    own = define_logprobs(logits)
    own = np.where(own > -np.inf, np.maximum(own, least), own)
    wanted = np.sort(own[own > -np.inf])[::-1][:count]
    if len(top) != len(wanted) or len({id for id, _ in top}) != len(top):
        return f"{len(top)} tokens are listed for {len(wanted)}"
    for place, ((id, got), right) in enumerate(zip(top, wanted.tolist(), strict=True)):
        if not (is_near(got, float(own[id])) and is_near(got, right)):
            return (
                f"at place {place} of the most probable tokens is token {id} with ln p = {got:.8g}; its own "
                f"is {own[id]:.8g}, and the one there has {right:.8g}"
            )
    return ""


def is_near(got: Any, wanted: Any) -> bool:
    """Returns whether two figures are equal, numbers within `TOLERANCE`.

    >>> is_near(1.0, 1.0 + 1e-12), is_near(2, 3), is_near(None, None)
    (True, False, True)
    """
    if isinstance(wanted, float) and isinstance(got, float):
        return bool(abs(got - wanted) <= TOLERANCE * max(1.0, abs(wanted)))
    return bool(got == wanted)


class SamplerStage(NamedTuple):
    """One sampler of a chain, with the scores [V] before and after it."""

    name: str
    before: Array
    after: Array


def follow_samplers(logits: Array, sampling: Sampling, text: TextSoFar) -> list[SamplerStage]:
    """Returns what each sampler that is set makes of the logits [V]."""
    stages, scores = list[SamplerStage](), np.asarray(logits, float)
    for name, apply in DEFINITIONS.items():
        value = getattr(sampling, name)
        if value != DEFAULTS[name]:
            stages.append(SamplerStage(name, scores, scores := apply(scores, value, text)))
    return stages


def find_wrong_entry(entry: Mapping[str, Any], logits: Array, sampling: Sampling, text: TextSoFar) -> str:
    """Returns the name of the first figure of a ledger's entry, as its file has it, that is not the one its
    definition gives, then both; "" where all are right.

    A bound that lies on a token within rounding may cut on either side of it.
    """
    own, id = define_logprobs(logits), entry["id"]
    plain: dict[str, Any] = {
        "logit": float(logits[id]),
        "rank": define_rank(logits, id),
        "surprisal": -float(own[id]),
        "entropy": define_entropy(logits),
    }
    for name, wanted in plain.items():
        if not is_near(entry[name], wanted):
            return f"{name} is {entry[name]!r}; its definition gives {wanted!r}"
    found = [
        _find_wrong_draw(entry, logits, sampling, TextSoFar(text.prompt, text.new, text.stop_ids, slack))
        for slack in (0.0, SLACK, -SLACK)
    ]
    return "" if "" in found else found[0]


def _find_wrong_draw(entry: Mapping[str, Any], logits: Array, sampling: Sampling, text: TextSoFar) -> str:
    stages = follow_samplers(logits, sampling, text)
    scores = stages[-1].after if stages else np.asarray(logits, float)
    probs, kept = compute_probabilities(scores), int((scores > -np.inf).sum())
    normalizer = entry["log_normalizer"] - entry["candidates"][0][2]  # whatever is added to all scores
    figures: list[tuple[str, Any, Any]] = [
        ("kept", entry["kept"], kept),
        ("probability", entry["probability"], float(probs[entry["id"]])),
        ("log_normalizer", normalizer, -float(np.log(probs.max()))),
    ]
    for name, got, wanted in figures:
        if not is_near(got, wanted):
            return f"{name} is {got!r}; its definition gives {wanted!r}"
    return _find_wrong_candidate(entry, logits, probs, kept) or _find_wrong_removal(entry, stages)


def _find_wrong_candidate(entry: Mapping[str, Any], logits: Array, probs: Array, kept: int) -> str:
    listed, ordered = entry["candidates"], np.sort(probs)[::-1]
    if not min(kept, 10) <= len(listed) <= kept:
        return f"candidates are {len(listed)} of {kept}"
    for place, (id, logit, score, probability) in enumerate(listed):
        own = float(np.exp(score - entry["log_normalizer"]))
        figures = ((logit, float(logits[id])), (probability, float(probs[id])), (probability, own))
        if not all(is_near(*pair) for pair in (*figures, (probability, float(ordered[place])))):
            return (
                f"candidates[{place}] is token {id}, logit {logit!r}, p = {probability!r}; its definition "
                f"gives {logits[id]!r} and {probs[id]!r}"
            )
    return (
        ""
        if entry["id"] in {row[0] for row in listed} or len(listed) == 1000
        else "candidates lack the token"
    )


def _find_wrong_removal(entry: Mapping[str, Any], stages: Sequence[SamplerStage]) -> str:
    recorded = {row["sampler"]: row for row in entry["removed"]}
    for name, before, after in stages:
        gone = np.flatnonzero((before > -np.inf) & (after == -np.inf))
        row = recorded.pop(name, {"count": 0, "mass": 0.0, "ids": []})
        mass = float(compute_probabilities(before)[gone].sum())
        first = np.sort(before[gone])[::-1][:5]
        if row["count"] != len(gone) or not is_near(row["mass"], mass):
            return (
                f"removed[{name}] is {row['count']} tokens with p = {row['mass']!r}; its definition gives "
                f"{len(gone)} with {mass!r}"
            )
        if not (np.isin(row["ids"], gone).all() and np.array_equal(before[row["ids"]], first)):
            return (
                f"removed[{name}] lists the tokens {row['ids']}, which are not the most probable removed ones"
            )
    return f"removed[{next(iter(recorded))}] is by a sampler that is not set" if recorded else ""
