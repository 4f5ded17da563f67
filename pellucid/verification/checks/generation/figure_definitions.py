"""The definitions of the figures that come with a token, in NumPy, from one row of logits.

The engine, the ledger and the server share one computation of them (`samplers/own_probabilities.py`,
`samplers/drawn_token.py`), so that none can show that a formula there is wrong. Here each stands as its field
is documented.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.reference.op import Array
from pellucid.verification.checks.generation.sampler_definitions import (
    DEFINITIONS,
    SLACK,
    TextSoFar,
    compute_probabilities,
)

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
