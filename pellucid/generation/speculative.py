"""Speculative decoding that never changes a text: proposed tokens are read in one call, and the target model
draws its own token at each place.

    proposed = propose_by_lookup(ids)                  # or propose_by_draft(draft, [...])[0]
    logits = ...                                       # of the last token and of each proposed one [1 + k V]
    for chosen in draw_while_accepted(logits, state, proposed):
        state.append(chosen.id)

The draw at each place is the one that would be made without proposals: the same logits, the same samplers,
the same u. A proposal is accepted if it is the token that was drawn; the first other token is emitted too,
and ends the step. So proposals decide how many tokens a call yields, and nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pellucid.errors import PellucidError, UsageError
from pellucid.generation.chain import ChainState, Chosen, choose
from pellucid.model.cache import Cache
from pellucid.model.transformer import Transformer

LONGEST_LOOKUP = 3
"""Tokens at the end of a text that prompt look-up searches for; fewer where those are new."""


def propose_by_lookup(ids: Sequence[int], tokens: int, longest: int = LONGEST_LOOKUP) -> list[int]:
    """Returns the tokens that followed the latest earlier occurrence of the text's last `longest` tokens, or
    of fewer where those do not occur before; [] if even the last token is new.

    A match near the end goes on into what it proposes, as a repetition does.

    >>> propose_by_lookup([7, 1, 2, 8, 9, 1, 2], 3)
    [8, 9, 1]
    >>> propose_by_lookup([5, 6, 5, 6], 5)
    [5, 6, 5, 6, 5]
    >>> propose_by_lookup([1, 2, 3], 2)
    []
    """
    text = list(ids)
    end = len(text)
    for length in range(min(longest, end - 1), 0, -1):
        wanted = text[end - length :]
        for start in range(end - length - 1, -1, -1):
            if text[start] == wanted[0] and text[start : start + length] == wanted:
                for place in range(start + length, start + length + tokens):
                    text.append(text[place])
                return text[end:]
    return []


@dataclass(frozen=True)
class Draft:
    """One text that a draft model continues: its cache, which has read the first tokens of `text`, the state
    of its samplers, and how many tokens to propose."""

    cache: Cache
    text: Sequence[int]
    state: ChainState
    tokens: int


@torch.inference_mode()
def propose_by_draft(draft: Transformer, drafts: Sequence[Draft]) -> list[list[int]]:
    """Returns the tokens that the draft model proposes for each text.

    It draws with the samplers and the random numbers of the text itself, so that where both models have
    nearly the same distribution they draw the same token. A text whose draw fails has fewer proposals.
    """
    proposed: list[list[int]] = [[] for _ in drafts]
    states = [one.state.fork() for one in drafts]
    unread = [list(one.text[int(one.cache.host_lengths[0]) :]) for one in drafts]
    rows = [row for row, one in enumerate(drafts) if one.tokens > 0]
    while rows:
        ends = torch.tensor([len(unread[row]) for row in rows]).cumsum(0) - 1
        logits = draft.forward_packed([(drafts[row].cache, unread[row]) for row in rows], ends.tolist())
        for row, chosen in zip(list(rows), choose(logits, [states[row] for row in rows]), strict=True):
            if isinstance(chosen, PellucidError):
                rows.remove(row)
                continue
            proposed[row].append(chosen.id)
            states[row].append(chosen.id)
            unread[row] = [chosen.id]
            if len(proposed[row]) == drafts[row].tokens:
                rows.remove(row)
    return proposed


def draw_while_accepted(
    logits: torch.Tensor,
    state: ChainState,
    proposed: Sequence[int],
    *,
    record: bool = False,
    logprobs: bool = False,
) -> Iterator[Chosen | PellucidError]:
    """Yields the target's own tokens, from the logits [1 + k V] of the last token and of k proposed ones, up
    to the first that is not the proposed one.

    The caller appends each token to the state before it takes the next, and takes no more where the text
    ends.
    """
    for row in range(1 + len(proposed)):
        [chosen] = choose(logits[row : row + 1], [state], record=[record], logprobs=[logprobs])
        yield chosen
        if isinstance(chosen, PellucidError) or row == len(proposed) or chosen.id != proposed[row]:
            return


def check_speculation(target: Cache, draft: Transformer | None, vocab_size: int) -> None:
    """Raises unless rejected proposals can be removed from the target's cache, and the draft model reads the
    same tokens."""
    if not target.can_rewind:
        raise UsageError(
            "speculative decoding removes rejected tokens from the cache, and this model's cache (a ring "
            "buffer or the state of linear attention) cannot be rewound: omit draft and lookup."
        )
    if draft is None:
        return
    config = draft.config
    if config.vocab_size != vocab_size:
        raise UsageError(
            f"the draft model has {config.vocab_size:,} tokens and the target {vocab_size:,}: a draft model "
            "must have the target's tokenizer."
        )
    if config.context_length < target.capacity:
        raise UsageError(
            f"the draft model's context of {config.context_length:,} tokens is shorter than the "
            f"{target.capacity:,} of a slot: use capacity={config.context_length}, or another draft model."
        )
    if not Cache(config, 1, config.context_length, device="meta").can_rewind:
        raise UsageError(
            "the draft model's cache (a ring buffer or the state of linear attention) cannot be rewound when "
            "proposals are rejected: use a draft model with full causal attention, or lookup."
        )
