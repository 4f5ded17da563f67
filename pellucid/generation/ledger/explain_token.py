"""Explains a token of a ledger: from its probability through the samplers to the logits, and into the model.

The specification runs on the tokens that the model had read, and the samplers are steps on its tape. In the
run itself the keys and values of earlier positions were not computed again: they came from the cache, where
the prompt and each new token had left them. The labels of the axis s say which.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pellucid.base.formatting import format_number, pluralize
from pellucid.base.names import asks_for_heads
from pellucid.explanation import derive
from pellucid.explanation.derive import Derivation
from pellucid.explanation.table import Slice
from pellucid.explanation.trace import IN_PYTHON, More, Trace
from pellucid.generation.constraints import compile_constraint
from pellucid.generation.context import check_fits
from pellucid.generation.ledger.ledger import Ledger, open_model_of
from pellucid.generation.ledger.text import find_step, format_token, token_text
from pellucid.generation.samplers.chain import Chain, ChainState
from pellucid.generation.samplers.sampling_steps import append_chain
from pellucid.model import Model

A_SECOND = 10**9
"""Parameters times tokens from which on the specification takes more than about a second."""
DEFAULT_ADDRESS = "sampling.probability"
"""The number that is explained where none is named: with which the token was drawn."""


@dataclass(frozen=True)
class TokenNumber:
    """A number behind one token of a ledger, or a table of them, and what must be known of it."""

    found: Derivation | Slice
    notes: tuple[str, ...]
    token: dict[str, Any]

    @property
    def name(self) -> str:
        return self.found.name

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the notes, then the number's own lines."""
        yield from self.notes
        yield from self.found.to_lines(digits, more)

    def to_data(self) -> dict[str, Any]:
        """Returns the number's own data, with the token."""
        return self.found.to_data() | {"token": self.token}

    def __str__(self) -> str:
        return "\n".join((*self.notes, str(self.found)))


def explain_token(
    ledger: Ledger,
    token: int,
    at: str | None = None,
    *,
    choice: int = 0,
    model: Model | str | None = None,
    depth: int = 3,
    top: int = 6,
    lines: int | None = 40,
    flatten: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> TokenNumber:
    """Returns where a number behind a token came from; tokens are numbered from 1.

    `model` is needed where the ledger's own is not at its path. `say` is called before what takes time.
    """
    step = find_step(ledger, token, choice)
    id, probability = find_choice(ledger, choice, step)
    found = model if isinstance(model, Model) else open_model_of(ledger, model)
    ids = ledger.read_context(choice, step)
    if ledger.model.parameters * len(ids) > A_SECOND:
        say(f"running the specification of {found.name} on {pluralize(len(ids), 'token')} …")
    trace = trace_token(ledger, found, choice, step, by_head=at is not None and asks_for_heads(at))
    notes = _describe(ledger, trace, choice, step)
    if at is None and ledger.completions[choice].entries:
        notes = [*format_token(ledger, token, choice), *notes[1:]]
    usual = DEFAULT_ADDRESS if ledger.sampling.beams == 1 else f"sampling.probs[v={id}]"
    derived = derive.explain(trace, at or usual, depth, top, lines, flatten)
    about = {"choice": choice, "token": step + 1, "id": id, "probability": probability}
    return TokenNumber(derived, tuple(notes), about)


def find_choice(ledger: Ledger, choice: int, step: int) -> tuple[int, float]:
    """Returns a token and the probability with which it was chosen; of a beam, that of its node."""
    completion = ledger.completions[choice]
    if completion.entries:
        return completion.ids[step], completion.entries[step].probability
    node = -1 if completion.node is None else completion.node
    for _ in completion.ids[step + 1 :]:
        node = ledger.beams[node].parent if node >= 0 else -1
    return completion.ids[step], math.exp(ledger.beams[node].logprob) if node >= 0 else math.nan


def trace_token(ledger: Ledger, model: Model, choice: int, step: int, by_head: bool = False) -> Trace:
    """Returns the specification's run on the context of a new token, with the samplers and the draw."""
    ids = ledger.read_context(choice, step)
    trace = model.trace(list(ids), by_head=by_head)
    state = _make_state(ledger, model, choice, step)
    append_chain(trace.tape, "logits", len(ids) - 1, state)
    plain = trace.labels["s"]
    places = [
        f"{text} ({origin})" for text, origin in zip(plain, _find_origins(ledger, choice, step), strict=True)
    ]
    return replace(trace, labels=trace.labels | {"s": places})


def _make_state(ledger: Ledger, model: Model, choice: int, step: int) -> ChainState:
    config, sampling = model.config, ledger.sampling
    prefix = config.mask.bidirectional_prefix
    most = check_fits(len(ledger.prompt), sampling, config.context_length, prefix)
    sampling = replace(sampling, max_new_tokens=most)
    tokenizer, stop_ids = model.pretrained.tokenizer, ledger.stop_ids
    constraint = compile_constraint(sampling, tokenizer, config.vocab_size, stop_ids)
    chain = Chain.make(sampling, ledger.prompt, config.vocab_size, stop_ids, ledger.seed, constraint)
    state = ChainState(chain, choice)
    for id in ledger.completions[choice].ids[:step]:
        state.append(id)
    return state


def _find_origins(ledger: Ledger, choice: int, step: int) -> list[str]:
    """Returns for each position of the context when its keys and values were computed."""
    held = len(ledger.read_context(choice, step))
    cuts = [cut for cut in ledger.shortenings if cut.choice == choice and cut.step <= step]
    read = cuts[-1].kept if cuts else len(ledger.prompt)
    first = cuts[-1].step if cuts else 0
    together = f"read again before token {first + 1}" if cuts else "prompt"
    return [together] * read + [f"token {first + i + 1}" for i in range(held - read)]


def _describe(ledger: Ledger, trace: Trace, choice: int, step: int) -> list[str]:
    id, probability = find_choice(ledger, choice, step)
    which = f"token {step + 1}" + (f" of choice {choice}" if len(ledger.completions) > 1 else "")
    notes = [f"{which}: {token_text(ledger, id)}, p = {format_number(probability, 5)}"]
    found = int(trace.tape["sampling.id"].item())
    if found != id and ledger.sampling.beams == 1:
        other = token_text(ledger, found)
        notes.append(
            f"the specification, in float64, chooses {other}: rounding of {ledger.model.dtype} decided"
        )
    else:
        far = abs(float(trace.tape["sampling.probs"][0, 0, id]) - probability)
        notes.append(f"the specification computes it in float64: p differs by {far:.1e}")
    if step:
        notes.append("in the run keys and values came from the cache: on the axis s, when they were computed")
    place = len(trace.labels["t"]) - 1
    notes.append(f'the logit behind it: --at "logits[t={place},v={id}]"')
    return [*notes, ""]
