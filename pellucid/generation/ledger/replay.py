"""Replays a ledger: every draw recomputed from the file alone, and every number again from its model."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from pellucid.base.dtypes import OTHER_MACHINE
from pellucid.base.formatting import pluralize
from pellucid.generation.ledger.content import (
    LedgerRecord,
    LedgerSampler,
    describe_versions,
    follow_context,
)
from pellucid.generation.ledger.entry import (
    MOST_CANDIDATES,
    Entry,
    compute_intervals,
    compute_log_normalizer,
    compute_probability,
)
from pellucid.generation.ledger.file import to_data
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.conflicts import CONSTRAINTS
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.samplers import Sampler

Run = Callable[[Request], Sequence[Completion]]
"""Generates: an engine's `add(request).result()`."""
OTHER_ENGINE = {"float64": 1e-9, "float32": 1e-3}
"""The tolerance of a model's numbers on another machine or version, by its dtype."""
OTHER_DTYPE = 0.1
"""The same of the narrower ones."""


class Comparison(NamedTuple):
    """A number of the file beside the one that follows from the others."""

    where: str
    what: str
    recorded: Any
    computed: Any
    tolerance: float = 0.0
    is_derived: bool = False
    """Whether recorded numbers, each with its rounding, are combined: then they agree within the tolerance,
    not bit for bit."""

    @property
    def is_exact(self) -> bool:
        return bool(self.recorded == self.computed) or (self.is_derived and self._is_near)

    @property
    def is_close(self) -> bool:
        return self.is_exact or self._is_near

    @property
    def _is_near(self) -> bool:
        if not (isinstance(self.recorded, float) and isinstance(self.computed, float)):
            return False
        return abs(self.recorded - self.computed) <= self.tolerance * max(1.0, abs(self.computed))

    def __str__(self) -> str:
        return f"{self.where}: the file says {self.what} = {self.recorded!r}, it follows {self.computed!r}"


@dataclass(frozen=True)
class LedgerReplay:
    """What was recomputed: tokens, draws, numbers in all, how many of them are equal bit for bit, and those
    that do not follow."""

    tokens: int
    draws: int
    numbers: int
    exact: int
    mismatches: tuple[Comparison, ...]
    has_model: bool = False
    """Whether the model ran again."""

    def __str__(self) -> str:
        count = len(self.mismatches)
        others = self.numbers - self.exact - count
        remark = (
            "bit for bit"
            if not others
            else f"{pluralize(others, 'number')} within rounding, the rest bit for bit"
        )
        by = ", computed again by the model" if self.has_model else ""
        parts = pluralize(self.tokens, "token"), pluralize(self.draws, "draw")
        head = f"{', '.join(parts)}, {count:,} mismatch{'es' * (count != 1)}"
        return f"{head} ({remark}{by})" if not count else f"{head}. The first:\n  {self.mismatches[0]}"


def replay_ledger(ledger: LedgerRecord, run: Run | None = None) -> LedgerReplay:
    """Recomputes what the file determines: u from the seed, probabilities from scores, each chosen token from
    u, the scores of beams, the chain from the settings. With `run`, its model generates again, and every
    entry is compared."""
    entries = [entry for completion in ledger.completions for entry in completion.entries]
    comparisons = [*compare_file(ledger)]
    if run is not None:
        again = replace(ledger.sampling, seed=ledger.seed, stop_ids=ledger.stop_ids)
        new = run(Request(ledger.prompt, again, ledger=True))
        comparisons += compare_runs(ledger, new, compute_tolerance(ledger))
    return LedgerReplay(
        sum(len(completion.ids) for completion in ledger.completions),
        sum(entry.u is not None for entry in entries),
        len(comparisons),
        sum(one.is_exact for one in comparisons),
        tuple(one for one in comparisons if not one.is_close),
        run is not None,
    )


# ---- from the file alone


def compare_file(ledger: LedgerRecord) -> Iterator[Comparison]:
    """Yields every number that others of the file determine, beside what they give."""
    for completion in ledger.completions:
        where = f"choice {completion.choice}" if len(ledger.completions) > 1 else "the text"
        for step, entry in enumerate(completion.entries):
            yield from _compare_entry(ledger, completion.choice, step, entry)
        yield from _compare_end(ledger, completion, where)
        for one in completion.speculative:
            emitted = completion.ids[one.step :]
            same = takewhile(lambda pair: pair[0] == pair[1], zip(one.proposed, emitted, strict=False))
            place = f"{where}, speculative step before token {one.step + 1}"
            yield Comparison(place, "accepted", one.accepted, sum(1 for _ in same))
    if ledger.sampling.seed is not None:
        yield Comparison("the settings", "seed", ledger.sampling.seed, ledger.seed)
    yield Comparison("the settings", "the chain of samplers", ledger.chain, describe_chain(ledger.sampling))
    yield from _compare_context(ledger)
    yield from _compare_beams(ledger)


def describe_chain(sampling: Sampling) -> tuple[LedgerSampler, ...]:
    """Returns the samplers in their order; a constraint, which a request compiles, with what it was given."""
    from pellucid.generation.samplers.chain import Chain

    given = {name: value for name in CONSTRAINTS if (value := getattr(sampling, name)) is not None}
    chain = Chain(sampling, (), 0, frozenset(), 0)
    samplers = [*chain.samplers, *([Sampler.read("constraint")] if given else [])]
    tables = [sampler.to_dict() for sampler in sorted(samplers, key=lambda sampler: sampler.order)]
    return tuple(
        LedgerSampler(kind, given if kind == "constraint" else to_data(table))
        for table in tables
        if (kind := table.pop("kind"))
    )


def _compare_entry(ledger: LedgerRecord, choice: int, step: int, entry: Entry) -> Iterator[Comparison]:
    from pellucid.generation.samplers.drawn_token import draw_uniform

    where = f"choice {choice}, token {step + 1}" if len(ledger.completions) > 1 else f"token {step + 1}"
    sampling, listed = ledger.sampling, entry.candidates
    is_drawn = sampling.temperature > 0 and sampling.beams == 1
    yield Comparison(where, "u", entry.u, draw_uniform(ledger.seed, choice, step) if is_drawn else None)
    for one in listed:
        text = ledger.texts.get(one.id, str(one.id))
        wanted = compute_probability(one.score, entry.log_normalizer)
        yield Comparison(where, f"the probability of {text!r}", one.probability, wanted, OTHER_MACHINE)
    order = [one.id for one in listed]
    by_rank = [one.id for one in sorted(listed, key=lambda one: (-one.score, one.id))]
    yield Comparison(where, "the order of the candidates", order, by_rank)
    if len(listed) == entry.kept:
        wanted = compute_log_normalizer([one.score for one in listed])
        yield Comparison(where, "log_normalizer", entry.log_normalizer, wanted, OTHER_MACHINE)
    removed = sum(one.count for one in entry.removed)
    yield Comparison(where, "the number of kept tokens", entry.kept, ledger.model.vocab_size - removed)
    mine = next((one for one in listed if one.id == entry.id), None)
    if mine is not None:
        yield Comparison(where, "the probability of the token", entry.probability, mine.probability)
        yield Comparison(where, "the logit of the token", entry.logit, mine.logit)
    if sampling.beams == 1:
        yield Comparison(where, "the token", entry.id, _choose_again(entry))
    if math.isfinite(entry.surprisal) and math.isfinite(entry.logit):
        yield from _compare_model(where, entry, ledger.model.vocab_size)


def _compare_model(where: str, entry: Entry, vocab_size: int) -> Iterator[Comparison]:
    """Yields what the logits say of rank, surprisal and entropy: ln p of a candidate is the token's, which is
    −surprisal, and the difference of their logits."""
    logs = [one.logit - entry.logit - entry.surprisal for one in entry.candidates]
    total = math.fsum(math.exp(min(log, 1.0)) for log in logs)
    is_whole = len(logs) == vocab_size
    yield Comparison(where, "Σ p of the candidates", total, 1.0 if is_whole else min(total, 1.0), 1e-9, True)
    if is_whole:
        entropy = -math.fsum(math.exp(min(log, 1.0)) * log for log in logs if log > -math.inf)
        yield Comparison(where, "entropy", entry.entropy, entropy, 1e-9, True)
    larger = sum(one.logit > entry.logit for one in entry.candidates)
    yield Comparison(where, "rank", entry.rank, max(entry.rank, larger))


def _choose_again(entry: Entry) -> int:
    """Returns the token whose interval has u; the recorded one where u is on its border within rounding, or
    where the candidates are not listed as far."""
    if entry.u is None:
        return entry.candidates[0].id
    intervals = compute_intervals(entry)
    for one in sorted(entry.candidates, key=lambda one: one.id != entry.id):
        start, end = intervals[one.id]
        slack = OTHER_MACHINE if one.id == entry.id else 0.0
        if start - slack <= entry.u < end + slack:
            return one.id
    is_beyond = MOST_CANDIDATES <= len(intervals) < entry.kept and entry.id not in intervals
    return entry.id if is_beyond else entry.candidates[-1].id


def _compare_end(ledger: LedgerRecord, completion: Completion, where: str) -> Iterator[Comparison]:
    stops = set(ledger.stop_ids)
    if inside := [step for step, id in enumerate(completion.ids[:-1]) if id in stops]:
        yield Comparison(where, "the place of its first stop token", len(completion.ids) - 1, inside[0])
    if completion.finish == "stop" and stops and not ledger.sampling.stop:
        ended = bool(completion.ids) and completion.ids[-1] in stops
        yield Comparison(where, "an end by a stop token", True, ended)
    if completion.finish == "length" and ledger.sampling.max_new_tokens is not None:
        yield Comparison(where, "the number of tokens", len(completion.ids), ledger.sampling.max_new_tokens)
    if completion.seed is not None:
        yield Comparison(where, "its seed", completion.seed, ledger.seed)


def _compare_context(ledger: LedgerRecord) -> Iterator[Comparison]:
    cuts = [
        replace(cut, choice=completion.choice)
        for completion in ledger.completions
        for cut in follow_context(ledger.model, ledger.sampling, ledger.prompt, completion.ids[:-1])[1]
    ]
    yield Comparison("the context", "its shortenings", ledger.shortenings, tuple(cuts))


def _compare_beams(ledger: LedgerRecord) -> Iterator[Comparison]:
    lengths = list[int]()
    for place, node in enumerate(ledger.beams):
        where = f"node {place} of the beam search"
        before = ledger.beams[node.parent].score if node.parent >= 0 else 0.0
        lengths.append(lengths[node.parent] + 1 if node.parent >= 0 else 1)
        yield Comparison(where, "its score", node.score, before + node.logprob)
        if node.penalty is not None:
            wanted = _raise(lengths[place], ledger.sampling.length_penalty)
            yield Comparison(where, "its length penalty", node.penalty, wanted, OTHER_MACHINE)
            yield Comparison(where, "its final score", node.final, node.score / node.penalty, OTHER_MACHINE)
        if node.parent >= 0:
            yield Comparison(where, "the fate of its parent", ledger.beams[node.parent].fate, "kept")
    for length in sorted(set(lengths)):
        peers = [node for node, own in zip(ledger.beams, lengths, strict=True) if own == length]
        kept = [node.score for node in peers if node.fate == "kept"]
        ends = set(ledger.stop_ids)
        pruned = [node.score for node in peers if node.fate == "pruned" and node.id not in ends]
        where = f"the beam search after {length} tokens"
        yield Comparison(where, "its kept beams", len(kept), min(len(kept), ledger.sampling.beams))
        if kept and pruned and not ledger.sampling.stop:  # a stop text may have ended what was pruned
            least = min(kept)
            yield Comparison(where, "the least score of a kept beam", least, max(least, *pruned))
    finals = sorted((node.final for node in ledger.beams if node.final is not None), reverse=True)
    if finals:
        scores = [completion.score for completion in ledger.completions]
        yield Comparison("the beam search", "the scores of its choices", scores, finals[: len(scores)])
    for completion in ledger.completions:
        if completion.node is not None:
            where, node = f"choice {completion.choice}", ledger.beams[completion.node]
            yield Comparison(where, "its beam", completion.ids, ledger.follow_beam(completion.node))
            yield Comparison(where, "its score", completion.score, node.final)


def _raise(length: int, exponent: float) -> float:
    try:
        return math.pow(length, exponent)
    except OverflowError:
        return math.inf


# ---- with the model


def compute_tolerance(ledger: LedgerRecord) -> float:
    """Returns how far a model's numbers may be from the file's: not at all on the same kind of machine."""
    if describe_versions(ledger.model.device) == ledger.versions:
        return 0.0
    return OTHER_ENGINE.get(ledger.model.dtype, OTHER_DTYPE)


def compare_runs(ledger: LedgerRecord, again: Sequence[Completion], tolerance: float) -> Iterator[Comparison]:
    """Yields every number of the entries and beams beside the one of another run; a choice ends at the first
    token that differs, since all that follows does."""
    for place, (node, same) in enumerate(zip(ledger.beams, again[0].beams if again else (), strict=False)):
        where = f"the model again, node {place} of the beam search"
        yield Comparison(where, "the token", (node.parent, node.id), (same.parent, same.id))
        yield Comparison(where, "ln p", node.logprob, same.logprob, tolerance)
        if (node.parent, node.id) != (same.parent, same.id):
            break
    for completion, other in zip(ledger.completions, again, strict=False):
        for step, (entry, new) in enumerate(zip(completion.entries, other.entries, strict=False)):
            where = f"the model again, choice {completion.choice}, token {step + 1}"
            yield from _compare_entries(where, ledger, entry, new, tolerance)
            if entry.id != new.id:
                break
        else:
            ids = other.ids[: len(completion.ids)] if completion.finish == "cancelled" else other.ids
            where = f"the model again, choice {completion.choice}"
            yield Comparison(where, "its tokens", completion.ids, ids)
            if completion.finish != "cancelled":
                yield Comparison(where, "its text", completion.text, other.text)
                yield Comparison(where, "its finish", completion.finish, other.finish)


def _compare_entries(
    where: str, ledger: LedgerRecord, entry: Entry, new: Entry, tolerance: float
) -> Iterator[Comparison]:
    yield Comparison(where, "the token", entry.id, new.id)
    yield Comparison(where, "u", entry.u, new.u)
    for name in ("logit", "probability", "surprisal", "entropy", "log_normalizer"):
        yield Comparison(where, name, getattr(entry, name), getattr(new, name), tolerance)
    if tolerance == 0:  # elsewhere two tokens with almost equal logits may have changed places
        yield Comparison(where, "rank", entry.rank, new.rank)
        yield Comparison(where, "kept", entry.kept, new.kept)
        yield Comparison(where, "what was removed", entry.removed, new.removed)
    found = {one.id: one for one in new.candidates}
    for one in entry.candidates:
        if one.id in found:
            text = repr(ledger.texts.get(one.id, str(one.id)))
            other = found[one.id]
            yield Comparison(where, f"the logit of {text}", one.logit, other.logit, tolerance)
            yield Comparison(
                where, f"the probability of {text}", one.probability, other.probability, tolerance
            )
        elif tolerance == 0:
            yield Comparison(where, "a candidate", one.id, None)
