"""The samplers of a request in their order, and the choice of a token from what they leave.

    chain = Chain.make(sampling, prompt, vocab_size, stop_ids, seed)
    states = [ChainState(chain, choice) for choice in range(n)]
    choose(logits, states)          # one token for each row of logits [B V]

A state holds what the samplers of one text depend on, the tokens so far, so that a text can be forked, and
a row's choice depends on nothing but its own logits, state and seed.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import PellucidError, TokenError, UsageError
from pellucid.generation.entry import (
    MOST_CANDIDATES,
    SHOWN_CANDIDATES,
    SHOWN_REMOVED,
    Candidate,
    Entry,
    Removal,
    compute_log_normalizer,
    compute_probability,
)
from pellucid.generation.row_operations import Ranking, rank_first, run_step, sort_tokens, to_array
from pellucid.generation.sampling import DEFAULT_NEW_TOKENS, Sampling
from pellucid.parts import kinds
from pellucid.parts.samplers import Sampler, Table


@dataclass(frozen=True)
class Chain:
    """The samplers of one request. `sampling.max_new_tokens` is how many new tokens fit."""

    sampling: Sampling
    prompt: tuple[int, ...]
    vocab_size: int
    stop_ids: frozenset[int]
    seed: int
    constraint: Any = None
    """Which tokens may follow, state by state: `start`, `allowed(state, remaining)`, `advance(state, id)`."""

    @classmethod
    def make(
        cls,
        sampling: Sampling,
        prompt: Iterable[int],
        vocab_size: int,
        stop_ids: Iterable[int],
        seed: int,
        constraint: Any = None,
    ) -> "Chain":
        """Returns the chain of a request; a setting that is not a sampler, or a token id outside of the
        vocabulary, is refused."""
        chain = cls(sampling, tuple(prompt), vocab_size, frozenset(stop_ids), seed, constraint)
        for sampler in chain.samplers:
            if (largest := max(sampler.token_ids, default=0)) >= vocab_size:
                raise TokenError(
                    f"{sampler.kind} names token {largest}, but the vocabulary has {vocab_size} tokens: use "
                    f"ids below {vocab_size}."
                )
        return chain

    @cached_property
    def samplers(self) -> tuple[Sampler, ...]:
        """The samplers in the order in which they run: the fields of `sampling` that are not at their
        defaults, those in `sampling.samplers`, and the constraint."""
        usual, found = Sampling(), [Sampler.read(given) for given in self.sampling.samplers]
        for name in kinds(Sampler.family):
            value = getattr(self.sampling, name, None)
            if value != getattr(usual, name, None):
                found.append(Sampler.read({"kind": name, name: value}, field=name))
        if self.constraint is not None:
            found.append(Sampler.read("constraint"))
        return tuple(sorted(found, key=lambda sampler: sampler.order))

    @property
    def is_greedy(self) -> bool:
        """Whether the token with the largest score is taken, and none is drawn."""
        return self.sampling.temperature == 0

    @cached_property
    def stages(self) -> tuple[tuple["Stage", Sampler], ...]:
        """The samplers by the stage that they share with other chains."""
        seen: Counter[str] = Counter()
        stages = []
        for sampler in self.samplers:
            stages.append((Stage(sampler.order, sampler.kind, seen[sampler.kind]), sampler))
            seen[sampler.kind] += 1
        return tuple(stages)

    @cached_property
    def prompt_ids(self) -> Table:
        return np.array(self.prompt, int)


class Stage(NamedTuple):
    """A place in the chains of several rows, whose samplers of one kind run together."""

    order: int
    kind: str
    nth: int

    @property
    def name(self) -> str:
        return self.kind if self.nth == 0 else f"{self.kind}_{self.nth + 1}"


@dataclass
class ChainState:
    """One text of a request: which choice it is, its new tokens, and the state of its constraint."""

    chain: Chain
    choice: int = 0
    new: list[int] = field(default_factory=list)
    constraint_state: int | None = None

    def __post_init__(self) -> None:
        if self.chain.constraint is not None and self.constraint_state is None:
            self.constraint_state = self.chain.constraint.start

    def append(self, id: int) -> None:
        """Adds the token that was chosen."""
        if self.chain.constraint is not None and self.constraint_state is not None:
            self.constraint_state = self.chain.constraint.advance(self.constraint_state, id)
        self.new.append(id)

    def fork(self, choice: int | None = None) -> "ChainState":
        """Returns a copy that goes on by itself."""
        choice = self.choice if choice is None else choice
        return ChainState(self.chain, choice, list(self.new), self.constraint_state)

    # ---- what samplers read

    @property
    def vocab_size(self) -> int:
        return self.chain.vocab_size

    @property
    def prompt(self) -> Table:
        return self.chain.prompt_ids

    @property
    def stop_ids(self) -> frozenset[int]:
        return self.chain.stop_ids

    @property
    def allowed(self) -> Table | None:
        if self.chain.constraint is None or self.constraint_state is None:
            return None
        limit = self.chain.sampling.max_new_tokens
        most = DEFAULT_NEW_TOKENS if limit is None else limit
        allowed: Table = self.chain.constraint.allowed(self.constraint_state, most - len(self.new))
        return allowed


class Chosen(NamedTuple):
    """A row's token; its log-probability under the model's own logits, and its entry, where asked for."""

    id: int
    logprob: float | None = None
    entry: Entry | None = None


def draw_uniform(seed: int, choice: int, step: int) -> float:
    """Returns the number u in [0, 1) of a token: a pure function of the seed, the choice and the number of
    new tokens before it, so that a text does not depend on what is drawn beside it.

    >>> draw_uniform(7, 0, 3) == draw_uniform(7, 0, 3) != draw_uniform(7, 0, 4)
    True
    """
    key = np.array([seed % 2**64, choice], np.uint64)
    raw = np.random.Philox(key=key, counter=[step, 0, 0, 0]).random_raw()
    return float((int(raw) >> 11) * 2.0**-53)


# ---- the samplers, many rows at once


Watch = Callable[[str, list[int], Tensor, Tensor], None]
"""Called after each stage: with its name, the rows that have it, and all scores before and after it."""


def process(logits: Tensor, states: Sequence[ChainState], watch: Watch | None = None) -> Tensor:
    """Returns the scores [B V] in float64 after every sampler; −∞ where a token was removed.

    Samplers of one kind run together, on the rows that have one.
    """
    scores = logits.double()
    stages: dict[Stage, list[tuple[int, Sampler]]] = {}
    for row, state in enumerate(states):
        for stage, sampler in state.chain.stages:
            stages.setdefault(stage, []).append((row, sampler))
    for stage, users in sorted(stages.items(), key=itemgetter(0)):
        given = {row: sampler.inputs(states[row]) for row, sampler in users}
        inputs = {row: values for row, values in given.items() if values is not None}
        if not inputs:
            continue
        rows, before, (_, sampler) = list(inputs), scores, users[0]
        batched = _batch(list(inputs.values()), scores.device)
        if len(rows) == len(states):
            scores = sampler.apply(run_step, before, **batched)
        else:
            scores = before.clone()
            scores[rows] = sampler.apply(run_step, before[rows], **batched)
        if watch:
            watch(stage.name, rows, before, scores)
    return scores


def _batch(inputs: list[dict[str, Any]], device: torch.device) -> dict[str, Tensor]:
    """Returns the rows of several samplers as [B V], and their numbers as columns [B 1]."""
    batched = {}
    for name, first in inputs[0].items():
        values = [given[name] for given in inputs]
        if isinstance(first, np.ndarray):
            batched[name] = torch.from_numpy(np.stack(values)).to(device)
        else:
            dtype = torch.float64 if isinstance(first, float) else torch.int64
            batched[name] = torch.tensor(values, dtype=dtype, device=device)[:, None]
    return batched


# ---- the choice

FEW = 4096
"""Kept tokens up to which all are sorted."""


def choose(
    logits: Tensor,
    states: Sequence[ChainState],
    *,
    record: Sequence[bool] = (),
    logprobs: Sequence[bool] = (),
) -> list[Chosen | PellucidError]:
    """Returns the token of each row of logits [B V], or the error that ends its request alone.

    `record` and `logprobs` say for each row whether its entry and its log-probability are asked for.
    """
    record, logprobs = record or [False] * len(states), logprobs or [False] * len(states)
    chosen: dict[int, Chosen | PellucidError] = {}
    for row, (id, top, state) in enumerate(zip(*find_largest(logits), states, strict=True)):
        if not math.isfinite(top):
            chosen[row] = find_bad_logit(logits[row])
        elif state.chain.is_greedy and not (state.chain.samplers or record[row] or logprobs[row]):
            chosen[row] = Chosen(id)
    left = [row for row in range(len(states)) if row not in chosen]
    if left:
        some = logits if len(left) == len(states) else logits[left]
        flags = ([flag[row] for row in left] for flag in (record, logprobs))
        chosen |= zip(left, _choose([states[row] for row in left], some, *flags), strict=True)
    return [chosen[row] for row in range(len(states))]


def find_largest(logits: Tensor) -> tuple[list[int], list[float]]:
    """Returns the token with the largest logit of each row, of equals the smallest id, and that logit; NaN
    where there is one."""
    if logits.device.type == "cpu":  # ten times faster than torch's, over one long row
        table = to_array(logits)
        ids = table.argmax(-1)
        return ids.tolist(), table[np.arange(len(ids)), ids].tolist()
    largest = logits.max(-1)
    return largest.indices.tolist(), largest.values.tolist()


def find_bad_logit(row: Tensor) -> UsageError:
    """Returns the error that names the first logit [V] that is NaN or +∞."""
    bad = (row.isnan() | (row == torch.inf)).nonzero().flatten().tolist()
    kind = "NaN" if bad and row[bad[0]].isnan() else "+∞"
    what = f"the logit of token {bad[0]} is {kind}" if bad else "every logit is −∞"
    return UsageError(f"{what}, so that no token can be chosen: try another dtype, or `pellucid verify`.")


def _choose(
    states: Sequence[ChainState], logits: Tensor, record: list[bool], logprobs: list[bool]
) -> list[Chosen | PellucidError]:
    """Returns the tokens of rows whose logits are numbers."""
    removed: list[list[Removal]] = [[] for _ in states]
    recorded = {row for row, is_recorded in enumerate(record) if is_recorded}

    def watch(name: str, rows: list[int], before: Tensor, after: Tensor) -> None:
        for row in recorded.intersection(rows):
            removed[row] += _find_removal(name, before[row], after[row])

    try:
        scores = process(logits, states, watch if recorded else None)
    except PellucidError as error:  # of one row: each is run alone, which gives the others the same tokens
        if len(states) == 1:
            return [error]
        each = (slice(i, i + 1) for i in range(len(states)))
        return [_choose(states[i], logits[i], record[i], logprobs[i])[0] for i in each]
    draws = _draw(scores, states, recorded)
    chosen: list[Chosen | PellucidError] = []
    own = {
        row: logits[row].double().log_softmax(-1)
        for row in range(len(states))
        if record[row] or logprobs[row]
    }
    for row, (state, drawn) in enumerate(zip(states, draws, strict=True)):
        if drawn is None:
            chosen.append(_find_empty_stage(logits[row : row + 1], state))
            continue
        logprob = float(own[row][drawn.id]) if row in own else None
        entry = _make_entry(logits[row], own[row], drawn, removed[row]) if record[row] else None
        chosen.append(Chosen(drawn.id, logprob if logprobs[row] else None, entry))
    return chosen


class Draw(NamedTuple):
    """A drawn token: its place among the first tokens in order of score."""

    place: int
    u: float | None
    ranking: Ranking
    scores: Table
    """Of the tokens of the ranking."""
    kept: int
    log_normalizer: float

    @property
    def id(self) -> int:
        return int(self.ranking.ids[self.place])


def _draw(scores: Tensor, states: Sequence[ChainState], recorded: set[int]) -> list[Draw | None]:
    """Returns the token of each row: the first in order of score whose cumulative probability exceeds u, or
    for greedy decoding the first; None where none is left.

    Few tokens are sorted whole; of many, only as many as u needs.
    """
    draws: list[Draw | None] = []
    for row, (state, values) in enumerate(zip(states, to_array(scores), strict=True)):
        (kept,) = np.nonzero(values > -np.inf)
        u = None if state.chain.is_greedy else draw_uniform(state.chain.seed, state.choice, len(state.new))
        if len(kept) > FEW:
            probs = scores[row].softmax(-1).cpu().numpy()
            least = SHOWN_CANDIDATES if row in recorded else 1
            ranking = rank_first(values, probs, u or 0.0, least)
            log_normalizer = float(values[ranking.ids[0]] - np.log(ranking.probs[0]))
        elif len(kept):
            ids = kept[sort_tokens(values[kept], kept)]
            exps = np.exp(values[ids] - values[ids[0]])
            probs = exps / exps.sum()
            ranking = Ranking(ids, probs, np.cumsum(probs))
            log_normalizer = float(values[ids[0]] + np.log(exps.sum()))
        else:
            draws.append(None)
            continue
        place = 0
        if u is not None:  # rounding may leave the last sum below 1
            below = min(u, math.nextafter(ranking.total, 0.0))
            place = int(np.searchsorted(ranking.reached, below, side="right"))
        draws.append(Draw(place, u, ranking, values[ranking.ids], len(kept), log_normalizer))
    return draws


# ---- the record of a choice


def _find_removal(sampler: str, before: Tensor, after: Tensor) -> Iterator[Removal]:
    """Yields what a sampler removed from one row, if anything."""
    scores = before.cpu().numpy()
    (gone,) = np.nonzero((scores > -np.inf) & (after.cpu().numpy() == -np.inf))
    if len(gone):
        probs = before.softmax(-1).cpu().numpy()[gone]
        shown = min(SHOWN_REMOVED, len(gone))
        first = gone[-scores[gone] <= np.partition(-scores[gone], shown - 1)[shown - 1]]
        first = first[sort_tokens(scores[first], first)[:shown]]
        yield Removal(sampler, len(gone), float(probs.sum()), tuple(first.tolist()))


def _find_empty_stage(logits: Tensor, state: ChainState) -> UsageError:
    """Returns the error that names the sampler which removed the last token."""
    emptied: list[str] = []

    def watch(name: str, rows: list[int], before: Tensor, after: Tensor) -> None:
        if not (after > -torch.inf).any():
            emptied.append(name)

    process(logits, [state], watch)
    return UsageError(
        f"{emptied[0]} removed the last token that the samplers before it had kept, so that none can be "
        "chosen: omit it, or allow more tokens."
    )


def _make_entry(logits: Tensor, own: Tensor, drawn: Draw, removed: list[Removal]) -> Entry:
    """Returns the record of a row's token; `own` are the model's own log-probabilities [V]."""
    values, logprobs = logits.double().cpu().numpy(), own.cpu().numpy()
    probs, id = np.exp(logprobs), drawn.id
    shown = min(max(drawn.place + 1, SHOWN_CANDIDATES), MOST_CANDIDATES)
    columns = (drawn.ranking.ids, values[drawn.ranking.ids], drawn.scores)
    ids, own_logits, scores = (column[:shown].tolist() for column in columns)
    # a replay computes from the listed numbers: where they are all, so does this
    is_whole = len(ids) == drawn.kept
    log_normalizer = compute_log_normalizer(scores) if is_whole else drawn.log_normalizer
    return Entry(
        id=id,
        u=drawn.u,
        logit=float(values[id]),
        probability=compute_probability(float(drawn.scores[drawn.place]), log_normalizer),
        rank=int((values > values[id]).sum() + (values[:id] == values[id]).sum()),
        surprisal=-float(logprobs[id]),
        entropy=-float((probs * np.where(probs > 0, logprobs, 0.0)).sum()),
        candidates=tuple(
            Candidate(*row, compute_probability(row[2], log_normalizer))
            for row in zip(ids, own_logits, scores, strict=True)
        ),
        kept=drawn.kept,
        log_normalizer=log_normalizer,
        removed=tuple(removed),
    )
