"""ln p(continuation | context): the sum over the continuation's tokens, each given all tokens before it.

    pairs = [encode_pair(model.pretrained, "The sky is", f" {word}") for word in ("blue", "green")]
    [score.total for score in score_continuations(model.module, pairs)]

A context is computed once for all continuations that follow it in the list; what a continuation's score is
depends on its context and on the continuations beside it alone.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.errors import TokenError, UsageError
from pellucid.model.cache import Cache
from pellucid.model.transformer import Transformer
from pellucid.pretrained import Pretrained

EncodedPair = tuple[list[int], list[int]]
"""The ids of a context, at least one, and of a continuation, at least one."""
MOST_ROWS = 8
"""Continuations of one context that are computed at once: each has a copy of the context's cache."""
MOST_TOKENS = 512
"""Tokens of continuations in one call, which bounds the memory of their logits."""


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


def score_continuations(module: Transformer, pairs: Iterable[EncodedPair]) -> Iterator[ContinuationScore]:
    """Yields the score of each continuation, in order.

    Where a context and its continuation are longer than the model's context, the context loses tokens at its
    beginning.
    """
    fitted = (_fit(module, context, continuation) for context, continuation in pairs)
    for (context, n_dropped), group in itertools.groupby(fitted, key=lambda found: found[:2]):
        yield from _score_group(module, context, [ids for _, _, ids in group], n_dropped)


def _fit(
    module: Transformer, context: Sequence[int], ids: Sequence[int]
) -> tuple[Sequence[int], int, Sequence[int]]:
    """Returns the end of the context that fits, the number of tokens before it, and the continuation."""
    longest, prefix = module.config.context_length, module.config.mask.bidirectional_prefix
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


@torch.inference_mode()
def _score_group(
    module: Transformer, context: Sequence[int], continuations: Sequence[Sequence[int]], n_dropped: int
) -> list[ContinuationScore]:
    """Returns the scores of continuations of one context."""
    n_rows = min(len(continuations), MOST_ROWS)
    capacity = len(context) + max(map(len, continuations)) - 1
    cache = Cache(module.config, 1 + n_rows, capacity, dtype=module.dtype, device=module.device)
    start = module.forward_packed([(cache.row(0), context)], [len(context) - 1])
    found: list[list[tuple[float, bool]]] = []
    for first in range(0, len(continuations), n_rows):
        some = continuations[first : first + n_rows]
        for place in range(len(some)):
            cache.copy_row(0, 1 + place)
        found += _score_rows(module, [cache.row(1 + place) for place in range(len(some))], start, some)
    return [
        ContinuationScore(tuple(logprob for logprob, _ in row), all(is_best for _, is_best in row), n_dropped)
        for row in found
    ]


def _score_rows(
    module: Transformer, caches: Sequence[Cache], start: Tensor, continuations: Sequence[Sequence[int]]
) -> list[list[tuple[float, bool]]]:
    """Returns ln p of every token of each continuation, and whether it was the most likely one.

    `caches` hold the context, `start` [1 V] are the logits after it.
    """
    first = [ids[0] for ids in continuations]
    rows = [[found] for found in _score_tokens(start.expand(len(first), -1), first)]
    for call in _split_calls([len(ids) - 1 for ids in continuations]):
        segments = [(caches[row], continuations[row][begin:end]) for row, begin, end in call]
        wanted = range(sum(len(ids) for _, ids in segments))
        targets = [id for row, begin, end in call for id in continuations[row][begin + 1 : end + 1]]
        scored = iter(_score_tokens(module.forward_packed(segments, wanted), targets))
        for row, begin, end in call:
            rows[row] += itertools.islice(scored, end - begin)
    return rows


def _split_calls(lengths: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    """Yields parts (row, begin, end) of rows of these lengths, together at most `MOST_TOKENS` tokens."""
    call, room = list[tuple[int, int, int]](), MOST_TOKENS
    for row, length in enumerate(lengths):
        begin = 0
        while begin < length:
            end = min(begin + room, length)
            call.append((row, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield call
                call, room = [], MOST_TOKENS
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
