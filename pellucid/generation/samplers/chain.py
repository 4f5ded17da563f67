"""The samplers of a request in their order, and the choice of a token from what they leave.

    chain = Chain.make(sampling, prompt, vocab_size, stop_ids, seed)
    states = [ChainState(chain, choice) for choice in range(n)]
    choose(logits, states)          # one token for each row of logits [B V]

A state holds what the samplers of one text depend on, the tokens so far, so that a text can be forked, and
a row's choice depends on nothing but its own logits, state and seed.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.base.errors import PellucidError, TokenError, UsageError, quote
from pellucid.generation.ledger.entry import SHOWN_CANDIDATES, Entry, Removal
from pellucid.generation.samplers.drawn_token import (
    draw_id,
    draw_token,
    draw_uniform,
    find_removals,
    make_entry,
)
from pellucid.generation.samplers.kept_scores import KeptScores, is_long
from pellucid.generation.samplers.own_probabilities import (
    TokenUncertainty,
    TopLogprobs,
    compute_logprobs,
    find_top,
    measure_uncertainty,
)
from pellucid.generation.samplers.row_operations import run_step, to_array, use_one_thread
from pellucid.generation.settings.sampling import DEFAULT_NEW_TOKENS, Sampling
from pellucid.parts import kinds
from pellucid.parts.samplers import Sampler, Table
from pellucid.parts.samplers.temperature import Temperature
from pellucid.parts.samplers.top_k import TopK


@dataclass(frozen=True)
class Chain:
    """The samplers of one request. `sampling.max_new_tokens` is how many new tokens fit."""

    sampling: Sampling
    prompt: tuple[int, ...]
    vocab_size: int
    stop_ids: frozenset[int]
    seed: int
    constraint: Any = None
    """Which tokens may follow, state by state: a `Constraint` of `generation/constraints/`."""

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
        """Returns whether the token with the largest score is taken, and none is drawn."""
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
    def users(self) -> "list[tuple[Stage, list[tuple[int, Sampler]]]]":
        """The result of `merge_stages` for a row that is alone."""
        return merge_stages([ChainState(self)])

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

    @property
    def keeps_scores(self) -> bool:
        """Returns whether every sampler leaves the scores of the next token as they are."""
        with contextlib.suppress(Exception):  # of someone's sampler: its stage says so
            return self.chain.constraint is None and all(
                sampler.inputs(self) is None for sampler in self.chain.samplers
            )
        return False

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
    def allowed(self) -> "Table | None":
        if self.chain.constraint is None or self.constraint_state is None:
            return None
        allowed: Table = self.chain.constraint.compute_mask(self.constraint_state, self.remaining)
        return allowed

    @property
    def remaining(self) -> int:
        """The number of tokens that may still be added."""
        limit = self.chain.sampling.max_new_tokens
        return (DEFAULT_NEW_TOKENS if limit is None else limit) - len(self.new)

    @property
    def must_end(self) -> bool:
        """Returns whether the constraint allows no token any more, so that the text ends without a stop
        token."""
        if self.chain.constraint is None or self.constraint_state is None or self.stop_ids:
            return False
        return bool(self.chain.constraint.must_end(self.constraint_state, self.remaining))


class Chosen(NamedTuple):
    """A row's token; its log-probability under the model's own logits, its entry, the most probable tokens
    and its uncertainty, where asked for."""

    id: int
    logprob: float | None = None
    entry: Entry | None = None
    top: TopLogprobs = ()
    uncertainty: TokenUncertainty | None = None


class Wanted(NamedTuple):
    """What a row's token comes with: the fields of `Chosen` that are asked for."""

    entry: bool = False
    logprob: bool = False
    top: int = 0
    uncertainty: bool = False


NOTHING = Wanted()


# ---- the samplers, many rows at once


Watch = Callable[[str, int, Tensor, Tensor], None]
"""Called after each stage: with its name, a row that has it, and its scores [V] before and after it."""


def process(logits: Tensor, states: Sequence[ChainState], watch: Watch | None = None) -> Tensor:
    """Returns the scores [B V] in float64 after every sampler; −∞ where a token was removed."""
    if not is_long(logits):
        return _process_together(logits, states, watch)
    kept = process_rows(logits, states, watch)
    return torch.cat([row.widen(logits.shape[-1]) for row in kept])


def process_rows(
    logits: Tensor, states: Sequence[ChainState], watch: Watch | None = None
) -> list[KeptScores]:
    """Returns what the samplers leave of each row of logits [B V]."""
    if not is_long(logits):
        scores = _process_together(logits, states, watch)
        return [KeptScores(scores[row : row + 1]) for row in range(len(states))]
    return [_process_alone(logits, states, row, watch) for row in range(len(states))]


def _process_together(logits: Tensor, states: Sequence[ChainState], watch: Watch | None) -> Tensor:
    """Samplers of one kind run together, on the rows that have one."""
    scores = logits.double()
    for stage, users in states[0].chain.users if len(states) == 1 else merge_stages(states):
        before = scores
        rows, scores = _run_stage(stage, before, states, users)
        for row in rows if watch else ():
            assert watch is not None
            watch(stage.name, row, before[row], scores[row])
    return scores


def _process_alone(logits: Tensor, states: Sequence[ChainState], row: int, watch: Watch | None) -> KeptScores:
    """One long row, narrowed as soon as few tokens can be left; under a watch, which sees every removed
    token, as soon as few are."""
    state, vocab_size = states[row], logits.shape[-1]
    kept = KeptScores(logits if len(states) == 1 else logits[row : row + 1])
    for place, (stage, users) in enumerate(state.chain.users):
        if watch is None and (k := _find_top_k(state, place)) is not None:
            kept = kept.keep_candidates(k)
        if kept.ids is not None and _keeps_all(users[0][1], len(kept.ids)):
            continue
        kept = kept._replace(scores=kept.scores.double())
        has_run, scores = _run_stage(stage, kept.scores, [state], users, kept.ids)
        after = kept._replace(scores=scores)
        if watch and has_run:
            watch(stage.name, row, kept.widen(vocab_size)[0], after.widen(vocab_size)[0])
        kept = after.narrow() if has_run else kept
    return kept._replace(scores=kept.scores.double())


def _find_top_k(state: ChainState, place: int) -> int | None:
    """Returns the k of top-k, where at a place of the chain it comes next, after temperatures alone, which
    leave the tokens in their order; else None."""
    for _, ((_, sampler), *_) in state.chain.users[place:]:
        if isinstance(sampler, TopK):
            return sampler.top_k
        if not isinstance(sampler, Temperature):
            return None
    return None


def _keeps_all(sampler: Sampler, count: int) -> bool:
    """Returns whether a sampler leaves the scores of so few tokens as they are."""
    return isinstance(sampler, TopK) and count <= sampler.top_k


def merge_stages(states: Sequence[ChainState]) -> list[tuple[Stage, list[tuple[int, Sampler]]]]:
    """Returns the stages of all rows in their order, each with the rows that have it and their samplers."""
    stages: dict[Stage, list[tuple[int, Sampler]]] = {}
    for row, state in enumerate(states):
        for stage, sampler in state.chain.stages:
            stages.setdefault(stage, []).append((row, sampler))
    return sorted(stages.items(), key=itemgetter(0))


def _run_stage(
    stage: Stage,
    scores: Tensor,
    states: Sequence[ChainState],
    users: Sequence[tuple[int, Sampler]],
    ids: "Table | None" = None,
) -> tuple[list[int], Tensor]:
    """Returns the rows on which samplers of one kind have something to do, and all scores after them; the
    scores are those of the tokens `ids`, where these are given."""
    try:
        given = {row: sampler.inputs(states[row]) for row, sampler in users}
        inputs = {row: values for row, values in given.items() if values is not None}
        if not inputs:
            return [], scores
        rows, (_, sampler) = list(inputs), users[0]
        batched = _batch(list(inputs.values()), scores.device, ids)
        if len(rows) == len(states):
            return rows, sampler.apply(run_step, scores, **batched)
        after = scores.clone()
        after[rows] = sampler.apply(run_step, scores[rows], **batched)
        return rows, after
    except PellucidError:
        raise
    except Exception as error:  # a sampler may be anyone's
        raise UsageError(f"the sampler {stage.name} failed: {quote(error)}.") from error


def _batch(inputs: list[dict[str, Any]], device: torch.device, ids: "Table | None") -> dict[str, Tensor]:
    """Returns the rows of several samplers as [B V], or of the tokens `ids` alone, and their numbers as
    columns [B 1]."""
    batched = {}
    for name, first in inputs[0].items():
        values = [given[name] for given in inputs]
        if isinstance(first, np.ndarray):
            rows = np.stack(values) if ids is None else np.stack(values)[:, ids]
            batched[name] = torch.from_numpy(rows).to(device)
        else:
            dtype = np.float64 if isinstance(first, float) else np.int64
            batched[name] = torch.from_numpy(np.array(values, dtype)[:, None]).to(device)
    return batched


# ---- the choice


def choose(
    logits: Tensor, states: Sequence[ChainState], wanted: Sequence[Wanted] = ()
) -> list[Chosen | PellucidError]:
    """Returns the token of each row of logits [B V], or the error that ends its request alone.

    `wanted` says for each row what comes with its token.
    """
    wanted = wanted or [NOTHING] * len(states)
    chosen: dict[int, Chosen | PellucidError] = {}
    for row, (id, top, state) in enumerate(zip(*find_largest(logits), states, strict=True)):
        if not math.isfinite(top):
            chosen[row] = find_bad_logit(logits[row])
        elif state.chain.is_greedy and not any(wanted[row]) and state.keeps_scores:
            chosen[row] = Chosen(id)
    left = [row for row in range(len(states)) if row not in chosen]
    if left:
        some = logits if len(left) == len(states) else logits[left]
        with use_one_thread() if is_long(some) else contextlib.nullcontext():
            drawn = _choose([states[row] for row in left], some, [wanted[row] for row in left])
        chosen |= zip(left, drawn, strict=True)
    return [chosen[row] for row in range(len(states))]


def find_largest(logits: Tensor) -> tuple[list[int], list[float]]:
    """Returns the token with the largest logit of each row, of equals the smallest id, and that logit; NaN
    where there is one."""
    if logits.device.type == "cpu":  # ten times faster than torch's, over one long row
        table = to_array(logits)
        if len(table) == 1:
            row = table[0]
            return [id := int(row.argmax())], [float(row[id])]
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
    states: Sequence[ChainState], logits: Tensor, wanted: Sequence[Wanted]
) -> list[Chosen | PellucidError]:
    """Returns the tokens of rows whose logits are numbers."""
    removed: list[list[Removal]] = [[] for _ in states]
    recorded = {row for row, one in enumerate(wanted) if one.entry}

    def watch(name: str, row: int, before: Tensor, after: Tensor) -> None:
        if row in recorded:
            removed[row] += find_removals(name, before, after)

    try:
        kept = process_rows(logits, states, watch if recorded else None)
    except PellucidError as error:  # of one row: each is run alone, which gives the others the same tokens
        if len(states) == 1:
            return [error]
        each = (slice(i, i + 1) for i in range(len(states)))
        return [_choose(states[i], logits[i], wanted[i])[0] for i in each]
    chosen: list[Chosen | PellucidError] = []
    for row, state in enumerate(states):
        u = None if state.chain.is_greedy else draw_uniform(state.chain.seed, state.choice, len(state.new))
        token = _draw(logits[row], kept[row], u, removed[row], wanted[row])
        chosen.append(_find_empty_stage(logits[row : row + 1], state) if token is None else token)
    return chosen


def _draw(
    logits: Tensor, kept: KeptScores, u: float | None, removed: Sequence[Removal], wanted: Wanted
) -> Chosen | None:
    """Returns the token of one row with what is wanted; None where every score is −∞."""
    if not wanted.entry:
        place = draw_id(kept.scores[0], u)
        token = None if place is None else Chosen(kept.get_id(place))
    else:
        drawn = draw_token(kept.widen(len(logits))[0], u, SHOWN_CANDIDATES)
        token = None if drawn is None else Chosen(drawn.id, None, make_entry(logits, drawn, removed))
    if token is not None and (wanted.logprob or wanted.top or wanted.uncertainty):
        return add_scores(token, logits, compute_logprobs(logits), wanted)
    return token


def add_scores(chosen: Chosen, logits: Tensor, own: Tensor, wanted: Wanted) -> Chosen:
    """Returns a token with what is wanted of the model's own distribution: `own` [V] is ln softmax of the
    logits [V]."""
    return chosen._replace(
        logprob=float(own[chosen.id]) if wanted.logprob else None,
        top=find_top(own, wanted.top) if wanted.top else (),
        uncertainty=measure_uncertainty(to_array(logits.double()), to_array(own), chosen.id)
        if wanted.uncertainty
        else None,
    )


def _find_empty_stage(logits: Tensor, state: ChainState) -> UsageError:
    """Returns the error that names the sampler which removed the last token."""
    emptied: list[str] = []

    def watch(name: str, row: int, before: Tensor, after: Tensor) -> None:
        if not (after > -torch.inf).any():
            emptied.append(name)

    process(logits, [state], watch)
    return UsageError(
        f"{emptied[0]} removed the last token that the samplers before it had kept, so that none can be "
        "chosen: omit it, or allow more tokens."
    )
