"""Faults of texts and their figures: in what a ledger and a server's answer say of a token, in proposed
tokens, reused prefixes, seeds, rows of unequal lengths, and constrained output."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pellucid.generation.ledger import token_text
from pellucid.generation.samplers import chain, drawn_token, own_probabilities
from pellucid.generation.strategies import sample
from pellucid.server.engine import alignment
from tests.faults.fault import Patch, fault
from tests.faults.in_generation import Wrong, around

figures = functools.partial(fault, "generation", check="figures")


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
def entropy_is_printed_in_bits(patch: Patch) -> None:
    """The file has nats; what is printed is divided by ln 2, and says nats."""

    def wrong(right: Wrong, ledger: Any, number: int, choice: int = 0) -> Any:
        entry = right(ledger, number, choice)
        return replace(entry, entropy=entry.entropy / math.log(2))

    around(patch, token_text, "find_token", wrong)


@figures(subject="bloom", at="answer.explain.entropy[token=0]")
def entropy_of_an_answer_is_in_bits(patch: Patch) -> None:
    """The server's numbers are converted, and the ledger's are not."""

    def wrong(right: Wrong, token: Any) -> Any:
        found = right(token)
        return found._replace(entropy=found.entropy / math.log(2))

    around(patch, alignment, "to_scored", wrong)


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
def top_logprobs_of_a_prompt_are_shifted_by_one_token(patch: Patch) -> None:
    """The most probable tokens at each place of a prompt are those of the next one."""

    def wrong(right: Wrong, self: Any, logits: Any) -> None:
        right(self, logits)
        tops = self.prompt_tops
        self.prompt_tops = [*tops[1:], *tops[:1]]

    around(patch, sample.Sample, "_score_prompt", wrong)


@figures(subject="gguf", at="ledger.removed[banned_tokens][token=0]")
def removed_mass_is_of_the_scores_after_the_sampler(patch: Patch) -> None:
    """What a sampler removed is weighed by the probabilities that it leaves, of which it has none."""

    def wrong(right: Wrong, name: str, before: Any, after: Any) -> Iterator[Any]:
        return (replace(one, mass=0.0) for one in right(name, before, after))

    around(patch, chain, "find_removals", wrong)
