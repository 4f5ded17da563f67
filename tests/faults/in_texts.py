"""Faults of texts and their figures: in what a ledger and a server's answer say of a token, in proposed
tokens, reused prefixes, seeds, rows of unequal lengths, and constrained output."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation import slots
from pellucid.generation.answers import alignment
from pellucid.generation.constraints import token_mask, token_table
from pellucid.generation.constraints.stories import StoryConstraint
from pellucid.generation.ledger import text
from pellucid.generation.samplers import chain, drawn_token, own_probabilities
from pellucid.generation.strategies import sample, speculative
from tests.faults.fault import Patch, fault, replacing
from tests.faults.in_generation import Wrong, around

figures = functools.partial(fault, "generation", check="figures")
reused = functools.partial(fault, "generation", check="prefix reuse")
seeded = functools.partial(fault, "generation", check="seeds")
unequal = functools.partial(fault, "length", check="unequal lengths")
constrained = functools.partial(fault, "generation", check="constrained")
proposals = functools.partial(fault, "generation", check="proposals")


# ---- figures


def _change_uncertainty(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Changes the entropy, the rank and the surprisal wherever they are measured."""
    right = own_probabilities.measure_uncertainty
    for module in (chain, drawn_token):
        patch.setattr(module, "measure_uncertainty", lambda *args: change(right(*args)))


@figures(subject="llama", at="ledger.entropy[token=0]")
def entropy_is_in_bits(patch: Patch) -> None:
    """The entropy is −Σ p log2 p, which is 1.44 times that in nats."""
    _change_uncertainty(patch, lambda own: own._replace(entropy=own.entropy / math.log(2)))


@figures(subject="gpt2", at="ledger.rank[token=0]")
def rank_is_counted_from_one(patch: Patch) -> None:
    """The most probable token has the rank 1."""
    _change_uncertainty(patch, lambda own: own._replace(rank=own.rank + 1))


@figures(subject="qwen3", at="printed ledger.entropy")
@replacing(text, "find_token")
def entropy_is_printed_in_bits(right: Wrong, ledger: Any, number: int, choice: int = 0) -> Any:
    """The file has nats; what is printed is divided by ln 2, and says nats."""
    entry = right(ledger, number, choice)
    return replace(entry, entropy=entry.entropy / math.log(2))


@figures(subject="bloom", at="answer.explain.entropy[token=0]")
@replacing(alignment, "to_scored")
def entropy_of_an_answer_is_in_bits(right: Wrong, token: Any) -> Any:
    """The server's numbers are converted, and the ledger's are not."""
    found = right(token)
    return found._replace(entropy=found.entropy / math.log(2))


@figures(subject="mistral", at="answer.top_logprobs[token=0]")
def top_logprobs_are_shifted_by_one_token(patch: Patch) -> None:
    """Each token of an answer comes with the most probable tokens of the place before it."""
    before: list[Any] = []

    def wrong(right: Wrong, token: Any) -> Any:
        found = right(token)
        before.append(found.top)
        return found._replace(top=before[-2] if len(before) > 1 else found.top[1:])

    around(patch, alignment, "to_scored", wrong)


@figures(subject="qwen2", at="prompt.top_logprobs[token=1]")
@replacing(sample.Sample, "_score_prompt")
def top_logprobs_of_a_prompt_are_shifted_by_one_token(right: Wrong, self: Any, logits: Any) -> None:
    """The most probable tokens at each place of a prompt are those of the next one."""
    right(self, logits)
    tops = self.prompt_tops
    self.prompt_tops = [*tops[1:], *tops[:1]]


@figures(subject="gguf", at="ledger.removed[banned_tokens][token=0]")
@replacing(chain, "find_removals")
def removed_mass_is_of_the_scores_after_the_sampler(
    right: Wrong, name: str, before: Any, after: Any
) -> Iterator[Any]:
    """What a sampler removed is weighed by the probabilities that it leaves, of which it has none."""
    return (replace(one, mass=0.0) for one in right(name, before, after))


# ---- proposed tokens


@proposals(subject="llama", at="proposals.text[wrong=1,token=1]")
@replacing(speculative, "draw_while_accepted")
def second_best_proposal_is_accepted(
    right: Wrong, first: Any, logits: Any, state: Any, proposed: Sequence[int], wanted: Any
) -> Iterator[Any]:
    """A proposal is taken for the target's own token where it is one of the two most probable."""
    tokens = right(first, logits, state, proposed, wanted)
    for row, token in enumerate(tokens):
        is_near = row < len(proposed) and proposed[row] in logits[row].topk(2).indices.tolist()
        if is_near and proposed[row] != token.id:
            yield token._replace(id=proposed[row])
            return
        yield token


@proposals(subject="long", at="proposals.text[wrong=1,token=2]")
def rejected_proposal_is_kept_in_the_cache(patch: Patch) -> None:
    """The keys and values of the first rejected token stay in place of the one that was chosen."""

    def wrong(right: Wrong, self: Any, row: Any, *args: Any) -> None:
        rewind = self.slots.rewind
        with patch.context() as inner:
            inner.setattr(
                self.slots,
                "rewind",
                lambda slot, length: rewind(slot, min(length + 1, len(self.slots.tokens[slot]))),
            )
            right(self, row, *args)
        self.slots.tokens[row.slot] = self.slots.tokens[row.slot][: len(row.tokens) - 1]

    around(patch, speculative.Speculate, "_append", wrong)


@proposals(subject="gpt2", at="proposals.accepted[wrong=…")
@replacing(speculative, "SpeculativeStep")
def rejected_proposal_is_counted(
    right: Wrong, step: int, proposer: str, proposed: Sequence[int], accepted: int
) -> Any:
    """The accepted tokens of a step are counted with the one after them."""
    return right(step, proposer, proposed, min(accepted + 1, len(proposed)))


@proposals(subject="bloom", at="proposals.steps[wrong=0]")
def proposals_are_never_read(patch: Patch) -> None:
    """Every text is generated as if nothing had been proposed."""
    patch.setattr(speculative.Speculate, "drafts", lambda self: [])


# ---- reused prefixes


@reused(subject="llama", at="prefix reuse[shared=57,token=0]")
def shared_prefix_is_counted_one_too_long(patch: Patch) -> None:
    """Two prompts share one token more than are equal: before a border, a chunk whose last token differs."""
    around(patch, slots, "count_equal", lambda right, one, other: right(one, other) + 1)


@reused(subject="long", at="prefix reuse[shared=127,token=0]")
def chunk_of_128_tokens_is_shared_where_127_are_equal(patch: Patch) -> None:
    """The border after the common tokens is taken for the one before, where it is one token away."""
    around(patch, slots.CacheSlots, "last_border", lambda right, self, length: right(self, length + 1))


# ---- seeds


@seeded(subject="gpt2", at="seeds.u[bit=32]")
def seed_is_cut_to_32_bits(patch: Patch) -> None:
    """Seeds that are equal in their lower 32 bits give one text."""
    around(patch, chain, "draw_uniform", lambda right, seed, *key: right(seed % 2**32, *key))


@seeded(subject="qwen2", at="seeds.u[bit=53]")
def seed_is_read_as_a_float(patch: Patch) -> None:
    """A seed of more than 53 bits is rounded to one that a float holds."""
    around(patch, chain, "draw_uniform", lambda right, seed, *key: right(int(float(seed)), *key))


@seeded(subject="bloom", at="seeds[11] again")
def text_depends_on_when_it_was_drawn(patch: Patch) -> None:
    """Each request has a key of its own beside its seed."""
    calls: list[int] = []

    def wrong(right: Wrong, seed: int, *key: int) -> float:
        calls.append(1)
        return float(right(seed + len(calls) // 40, *key))

    around(patch, chain, "draw_uniform", wrong)


# ---- rows of unequal lengths


def _choose_last(patch: Patch, choose: Callable[[int, int], int]) -> None:
    """Makes `last_only` return the token at another place of a row: of its length, and of the widest one."""

    def wrong(right: Wrong, self: Any, ids: Any, cache: Any, lengths: Any = None, last: bool = False) -> Any:
        logits = right(self, ids, cache, lengths)
        if not last:
            return logits
        widths = [ids.shape[1]] * len(ids) if lengths is None else lengths
        places = [choose(width, ids.shape[1]) for width in widths]
        return torch.stack([row[[place]] for row, place in zip(logits, places, strict=True)])

    around(patch, Transformer, "forward_cached", wrong)


@unequal(subject="llama", at="forward_cached[last_only=True,call=0,row=1]")
def last_token_of_a_row_is_its_padding(patch: Patch) -> None:
    """The last column is taken of every row, whatever its length."""
    _choose_last(patch, lambda length, width: width - 1)


@unequal(subject="gpt2", at="forward_cached[last_only=True,call=0,row=0]")
def last_token_of_a_row_is_the_one_before(patch: Patch) -> None:
    """The places of the last tokens are counted from 1."""
    _choose_last(patch, lambda length, width: max(length - 2, 0))


@unequal(subject="bloom", at="forward_cached[last_only=True,call=1,row=1]")
@replacing(Cache, "advance")
def padding_stays_in_the_cache(right: Wrong, self: Any, counts: Any) -> None:
    """Each row is advanced by the width of the call, padding included."""
    right(self, counts if isinstance(counts, int) else [max(counts)] * len(counts))


# ---- constrained output


@constrained(subject="llama", at="constrained.grammar[stories:tiny]")
@replacing(StoryConstraint, "compute_mask")
def a_story_forgets_what_it_has_called_its_hero(
    right: Any, self: StoryConstraint, state: int, remaining: int
) -> Any:
    """Every second word is any that some story has."""
    mask = right(self, state, remaining)
    if remaining % 2:
        return mask
    follows = {id for known in range(len(self.states)) for id in self.next_tokens(known).ids.tolist()}
    mask[[id for id in follows if id not in self.stop_ids]] = True
    return mask


@constrained(subject="llama", at="constrained.mask[regex=a(b|c)?1]")
def constraint_is_complete_at_once(patch: Patch) -> None:
    """Every state of a constraint is taken for one in which the text may end."""
    patch.setattr(token_mask.TableConstraint, "is_complete", lambda self, state: True)


@constrained(subject="gpt2", at="constrained.mask[regex=a(b|c)?1]")
@replacing(token_mask.Constraint, "compute_mask")
def token_is_allowed_that_leaves_no_room(right: Any, self: Any, state: Any, left: Any) -> Any:
    """A token is allowed after which as many tokens are needed as were left before it."""
    return right(self, state, left + 1)


@constrained(subject="bloom", at="constrained.mask[regex=a(b|c)?1]")
@replacing(token_mask.Constraint, "compute_mask")
def longest_token_is_missing_from_masks(right: Wrong, self: Any, state: int, left: int) -> Any:
    """Where several tokens may follow, the longest of them is never allowed."""
    mask = right(self, state, left)
    if mask.sum() > 1:
        mask[max(mask.nonzero()[0], key=lambda id: len(self.tokens.rest[id]))] = False
    return mask


@constrained(subject="gguf", at="constrained.tokenizer[regex=…")
@replacing(token_table, "_read_token_bytes")
def tokens_of_a_constraint_lose_their_space(right: Wrong, tokenizer: Any) -> Any:
    """The space that a token begins with is no part of what it adds to the text."""
    first, rest = right(tokenizer)
    return tuple(tuple(piece.strip(b" ") or piece for piece in some) for some in (first, rest))


@constrained(subject="qwen2", at="constrained.text[regex=(red|green|blue)]")
def text_stops_before_it_is_complete(patch: Patch) -> None:
    """The stop tokens are allowed beside every mask."""

    def wrong(right: Any, self: Any) -> Any:
        allowed = right.__get__(self)
        if allowed is not None:
            allowed[list(self.stop_ids)] = True
        return allowed

    _change_allowed(patch, wrong)


@constrained(subject="qwen3", at="constrained.text[regex=…")
def text_cannot_be_completed_in_time(patch: Patch) -> None:
    """A constraint is told that one token more is left than there is."""
    right: Any = chain.ChainState.remaining
    patch.setattr(chain.ChainState, "remaining", property(lambda self: right.__get__(self) + 1))


@constrained(subject="gguf", at="constrained.text[regex=(red|green|blue)]")
def constraint_has_no_mask(patch: Patch) -> None:
    """Every token may follow, and the state of the constraint is not advanced."""
    _change_allowed(patch, lambda right, self: None)
    patch.setattr(chain.ChainState, "append", lambda self, id: self.new.append(id))


@constrained(subject="mistral", at="constrained.text[regex=(red|green|blue)]")
def mask_is_that_of_the_start(patch: Patch) -> None:
    """The state of the constraint stays at its start."""
    patch.setattr(chain.ChainState, "append", lambda self, id: self.new.append(id))


def _change_allowed(patch: Patch, wrong: Callable[[Any, Any], Any]) -> None:
    right: Any = chain.ChainState.allowed
    patch.setattr(chain.ChainState, "allowed", property(lambda self: wrong(right, self)))
