"""The rule for a full context, as arithmetic on lengths: how many new tokens fit, and which tokens are read
again where they do not.

A text and its prompt have at most `context_length` tokens together under `refuse`. Under `crop` and `roll` a
text goes on: when it is longer than the context, some of its tokens are read again from position 0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import count_ids
from pellucid.base.errors import TokenError, UsageError
from pellucid.base.formatting import pluralize
from pellucid.generation.settings.sampling import DEFAULT_NEW_TOKENS, Sampling

if TYPE_CHECKING:
    from pellucid.model import Model


def check_fits(
    prompt_length: int, sampling: Sampling, context_length: int, bidirectional_prefix: float = 0
) -> int:
    """Returns the number of new tokens that are generated at most.

    It raises where the prompt, or the prompt with the new tokens that are asked for, does not fit, and where
    the model cannot continue such a prompt at all; `bidirectional_prefix` is that of the model's mask.

    >>> check_fits(60, Sampling(), 64)
    4
    >>> check_fits(60, Sampling(max_new_tokens=10, context="crop"), 64)
    10
    """
    _check_prompt(prompt_length, context_length, bidirectional_prefix)
    asked = sampling.max_new_tokens
    wanted = DEFAULT_NEW_TOKENS if asked is None else asked
    if sampling.context != "refuse":
        _check_kept(sampling.keep, context_length)
        return wanted
    fits = context_length - prompt_length
    needed = max(sampling.min_new_tokens, len(sampling.forced_tokens), 1) if asked is None else asked
    if fits < needed:
        also = "" if asked is None else f" and {asked:,} new ones (max_new_tokens)"
        remedies = [
            f"ask for at most {fits:,} new tokens" * (fits > 0),
            f"shorten the prompt to {context_length - needed:,} tokens" * (needed < context_length),
            'use context="crop" (--context crop)',
        ]
        raise TokenError(
            f"{pluralize(prompt_length, 'token')} of the prompt{also} do not fit the context of "
            f"{context_length:,}: {', or '.join(filter(None, remedies))}."
        )
    return min(wanted, fits)


def shorten(
    ids: Sequence[int], rule: str, keep: int, context_length: int, bidirectional_prefix: float = 0
) -> list[int]:
    """Returns the tokens that are read again, from position 0, where a text is longer than the context.

    `crop` keeps the last half of the context; `roll` the first `keep` tokens, and the last half of what the
    context holds beside them. Never fewer are kept than a mask reads in one call.

    >>> shorten(range(9), "crop", 0, 8), shorten(range(9), "roll", 2, 8)
    ([5, 6, 7, 8], [0, 1, 6, 7, 8])
    """
    if len(ids) <= context_length:
        return list(ids)
    first = keep if rule == "roll" else 0
    last = max((context_length - first) // 2, int(bidirectional_prefix) - first, 1)
    return [*ids[:first], *ids[-last:]]


def _check_prompt(length: int, context_length: int, bidirectional_prefix: float) -> None:
    """Raises unless a model can continue a prompt of that length: positions in the cache must not depend on
    later tokens."""
    if not length:
        raise TokenError("the prompt is empty: give at least one token.")
    if bidirectional_prefix > context_length:
        raise UsageError(
            "with this model's mask earlier positions depend on later tokens throughout the context: it can "
            "score texts, not generate them."
        )
    if length < bidirectional_prefix:
        raise TokenError(
            f"the mask is bidirectional over the first {bidirectional_prefix} tokens, and the prompt has "
            f"{length}: give at least {bidirectional_prefix} tokens."
        )


def _check_kept(keep: int, context_length: int) -> None:
    if keep >= context_length:
        raise TokenError(
            f"keep={keep:,} leaves no room in the context of {context_length:,}: use at most "
            f"{context_length - 1:,}, better a quarter of the context."
        )


def check_room(model: "Model", given: Any, sampling: Sampling) -> None:
    """Raises where the ids that are given do not fit the context under the settings' rule, before they are
    listed."""
    if (count := count_ids(given)) > model.config.context_length:
        check_fits(count, sampling, model.config.context_length)
