"""ln p(continuation | context): the sum over the continuation's tokens, each given all tokens before it.

    pairs = [encode_pair(model.pretrained, "The sky is", f" {word}") for word in ("blue", "green")]
    [score.total for score in score_continuations(model.module, pairs)]

A context is computed once for the continuations that follow it in the list. Short contexts and continuations
of several questions share a call; a score depends on its own context and continuation alone, in float32 on a
CPU bit for bit.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from pellucid.base.arguments import check_text
from pellucid.base.errors import TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.linear import MOST_DECODED
from pellucid.engine.precision import is_row_invariant
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.scoring import Journal, TargetScores, hash_inputs, hash_model
from pellucid.formats.pretrained import Pretrained
from pellucid.text.prompts import check_prompt

if TYPE_CHECKING:
    from pellucid.model import Model

EncodedPair = tuple[list[int], list[int]]
"""The ids of a context, at least one, and of a continuation, at least one."""
_FittedPair = tuple[Sequence[int], int, Sequence[int]]
"""The part of a context that fits, the number of its tokens that do not, and the continuation."""
MOST_TOKENS = 512
"""Tokens of continuations in one call, which bounds the memory of their logits."""
MOST_CONTINUATIONS = 16
"""Continuations that share one computation of their context: each has a copy of its cache."""
MOST_CONTEXTS = 16
"""Contexts whose continuations are computed together."""
MOST_POSITIONS = 8192
"""Positions in the caches of those contexts, where there are several."""


@dataclass(frozen=True)
class ContinuationScore:
    """What a model says about one continuation."""

    logprobs: tuple[float, ...]
    """ln p of each token of the continuation, given the context and the tokens before it."""
    is_greedy: bool
    """Whether each of its tokens was the most likely one, so that greedy decoding writes it."""
    n_dropped: int = 0
    """Tokens at the beginning of the context that did not fit the model's context."""

    @property
    def total(self) -> float:
        """ln p(continuation | context)."""
        return math.fsum(self.logprobs)


def encode_pair(pretrained: Pretrained, context: str, continuation: str) -> EncodedPair:
    """Returns the ids of a context and of a continuation, split as lm-eval splits them.

    Blanks at the end of the context belong to the continuation, because a word's token begins with its blank.
    The continuation's ids are those of the whole text after as many as the context alone has. A context
    without a word is the token that a text begins with.
    """
    if pretrained.tokenizer is None:
        raise TokenError(f"{pretrained.name} came without a tokenizer: a text cannot be scored, only ids.")
    encode, bos = pretrained.tokenizer.encode, pretrained.bos_ids
    stripped = context.rstrip()
    continuation = context[len(stripped) :] + continuation
    if stripped:
        first, whole = bos + encode(stripped), bos + encode(stripped + continuation)
    elif pretrained.start_id is None:
        raise TokenError(
            f"the context is empty, and {pretrained.name} has no token with which a text begins; give a "
            "context of at least one token."
        )
    else:
        ids = encode(continuation)
        first = [pretrained.start_id]
        whole = ids if ids[:1] == first else first + ids
    if len(whole) <= len(first):
        raise TokenError(
            f"{continuation!r} has no token of its own after its context: its characters belong to the "
            "context's last token. Begin it with a blank."
        )
    return first, whole[len(first) :]


def score_continuations(
    module: Transformer,
    pairs: Sequence[EncodedPair],
    *,
    journal: Journal | None = None,
) -> Iterator[ContinuationScore]:
    """Yields the score of each continuation, in order.

    Where a context and its continuation are longer than the model's context, the context loses tokens at its
    beginning. Scores that the `journal` holds are not computed again, and computed ones are added to it.
    """
    fitted = [fit_pair(module.config, *pair) for pair in pairs]
    if journal is None:
        yield from _compute_scores(module, fitted)
        return
    fingerprint = hash_model(module)
    keys = [hash_inputs(fingerprint, (context, ids)) for context, _, ids in fitted]
    known = {key for key in keys if key in journal}
    computed = _compute_scores(
        module, [one for one, key in zip(fitted, keys, strict=True) if key not in known]
    )
    for (_, n_dropped, _), key in zip(fitted, keys, strict=True):
        if key in known:
            yield _read_scores(journal[key], n_dropped)
        else:
            score = next(computed)
            journal[key] = _write_scores(score)
            yield score


def fit_pair(config: ModelConfig, context: Sequence[int], ids: Sequence[int]) -> _FittedPair:
    """Returns the end of the context that fits, the number of tokens before it, and the continuation; raises
    where the model cannot score them."""
    longest, prefix = config.context_length, config.mask.bidirectional_prefix
    if not context or not ids:
        raise TokenError("a context and a continuation need at least one token each.")
    if len(ids) > longest:
        raise TokenError(
            f"a continuation of {len(ids):,} tokens does not fit this model's context of {longest:,}: "
            "shorten it."
        )
    n_dropped = max(len(context) + len(ids) - 1 - longest, 0)  # the last token is predicted, not read
    if len(context) - n_dropped < prefix:
        raise UsageError(
            "with this model's mask the first tokens of a text see later ones, so that it would see the "
            "continuation that it predicts: "
            + (
                "its log-likelihood is not defined."
                if prefix == math.inf
                else f"give a context of at least {prefix} tokens."
            )
        )
    return context[n_dropped:], n_dropped, ids


def _write_scores(score: ContinuationScore) -> TargetScores:
    """Returns the entry of a journal; the rank there says only whether all tokens were the most likely."""
    ranks = [int(not score.is_greedy)] * len(score.logprobs)
    return TargetScores(-np.array(score.logprobs), np.array(ranks, np.int32))


def _read_scores(scores: TargetScores, n_dropped: int) -> ContinuationScore:
    return ContinuationScore(tuple((-scores.nll).tolist()), not scores.rank.any(), n_dropped)


class _Group(NamedTuple):
    """Continuations of one context."""

    context: Sequence[int]
    n_dropped: int
    continuations: list[Sequence[int]]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and positions of the cache: one row for the context, and one for each continuation of which
        more than the first token is scored."""
        rows = 1 + sum(len(ids) > 1 for ids in self.continuations)
        return rows, len(self.context) + max(map(len, self.continuations)) - 1


def _compute_scores(module: Transformer, fitted: Sequence[_FittedPair]) -> Iterator[ContinuationScore]:
    for groups in _split_groups(fitted):
        yield from _score_groups(module, groups)


def _split_groups(fitted: Iterable[_FittedPair]) -> Iterator[list[_Group]]:
    """Yields the groups that are computed together."""
    groups = list[_Group]()
    for context, n_dropped, ids in fitted:
        last = groups[-1] if groups else None
        if last and last[:2] == (context, n_dropped) and len(last.continuations) < MOST_CONTINUATIONS:
            last.continuations.append(ids)
            continue
        if (
            len(groups) >= MOST_CONTEXTS
            or sum(map(math.prod, (one.shape for one in groups))) > MOST_POSITIONS
        ):
            yield groups
            groups = []
        groups.append(_Group(context, n_dropped, [ids]))
    if groups:
        yield groups


@torch.inference_mode()
def _score_groups(module: Transformer, groups: Sequence[_Group]) -> list[ContinuationScore]:
    """Returns the scores of all continuations of the groups."""
    caches = [Cache(module.config, *one.shape, dtype=module.dtype, device=module.device) for one in groups]
    starts = _read_contexts(module, caches, groups)
    rows, segments = list[list[tuple[float, bool]]](), list[tuple[int, Cache, Sequence[int]]]()
    for group, cache, start in zip(groups, caches, starts, strict=True):
        first, copied = [ids[0] for ids in group.continuations], 0
        for ids, found in zip(
            group.continuations, _score_tokens(start.expand(len(first), -1), first), strict=True
        ):
            if len(ids) > 1:
                copied += 1
                cache.copy_row(0, copied)
                segments.append((len(rows), cache.row(copied), ids))
            rows.append([found])
    for call in _split_calls(module, [len(ids) - 1 for _, _, ids in segments], MOST_TOKENS):
        parts = [(segments[at], begin, end) for at, begin, end in call]
        wanted = range(sum(end - begin for _, begin, end in call))
        logits = module.forward_packed(
            [(cache, ids[begin:end]) for (_, cache, ids), begin, end in parts], wanted
        )
        targets = [id for (_, _, ids), begin, end in parts for id in ids[begin + 1 : end + 1]]
        scored = iter(_score_tokens(logits, targets))
        for (row, _, _), begin, end in parts:
            rows[row] += itertools.islice(scored, end - begin)
    dropped = [group.n_dropped for group in groups for _ in group.continuations]
    return [
        ContinuationScore(tuple(logprob for logprob, _ in row), all(is_best for _, is_best in row), n_dropped)
        for row, n_dropped in zip(rows, dropped, strict=True)
    ]


def _read_contexts(module: Transformer, caches: Sequence[Cache], groups: Sequence[_Group]) -> list[Tensor]:
    """Reads each context into the first row of its cache, and returns the logits [1 V] after each."""
    contexts, found = [group.context for group in groups], list[Tensor]()
    for call in _split_calls(module, list(map(len, contexts)), module.config.context_length):
        ends = itertools.accumulate(end for _, _, end in call)
        rows = [(caches[at].row(0), contexts[at]) for at, _, _ in call]
        found += module.forward_packed(rows, [end - 1 for end in ends]).split(1)
    return found


def _split_calls(
    module: Transformer, lengths: Sequence[int], longest: int
) -> Iterator[list[tuple[int, int, int]]]:
    """Yields the parts (segment, begin, end) of segments of these lengths that are computed in one call.

    Segments share a call as far as none depends on the others there (`engine/linear.py`); a longer one has
    its own, or several, of `longest` tokens each.
    """
    most = min(MOST_DECODED if is_row_invariant(module) else MOST_TOKENS, longest)
    call, room = list[tuple[int, int, int]](), most
    for at, length in enumerate(lengths):
        if length > room and call:
            yield call
            call, room = [], most
        if length > most:
            yield from ([(at, begin, min(begin + longest, length))] for begin in range(0, length, longest))
            continue
        call.append((at, 0, length))
        room -= length
    if call:
        yield call


def _score_tokens(logits: Tensor, targets: Sequence[int]) -> list[tuple[float, bool]]:
    """Returns ln softmax(logits)[target] in float64 of each row of logits [N V], and whether it is the
    largest."""
    ids = torch.tensor(targets, device=logits.device)
    best = (logits.argmax(-1) == ids).tolist()
    wide = logits.double()
    found = (wide.gather(-1, ids[:, None])[:, 0] - wide.logsumexp(-1)).tolist()
    return list(zip(found, best, strict=True))


@overload
def loglikelihood(model: "Model", context: str, continuation: str) -> float: ...


@overload
def loglikelihood(model: "Model", context: str, continuation: list[str]) -> list[float]: ...


def loglikelihood(model: "Model", context: str, continuation: str | list[str]) -> float | list[float]:
    """Returns ln p(continuation | context), the sum over its tokens; of several continuations, a list.

    The text is split into tokens as lm-eval splits it: blanks at the end of the context belong to the
    continuation, and an empty context is the token that a text begins with.
    """
    check_text("context", context)
    is_single = isinstance(continuation, str)
    texts = [continuation] if is_single else check_prompt(continuation, "continuation")
    pairs = [encode_pair(model.pretrained, context, check_text("continuation", text)) for text in texts]
    found = [score.total for score in score_continuations(model.module, pairs)]
    return found[0] if is_single else found
