"""Constrained output: which tokens may follow, so that the whole output matches what was asked for.

The output is the text of the new tokens alone, without the prompt.

    constraint = compile_constraint(sampling, tokenizer, vocab_size, stop_ids)
    state = constraint.start
    while not constraint.must_end(state, remaining):
        mask = constraint.compute_mask(state, remaining)     # [V], at least one token
        state = constraint.advance(state, id)           # a token of the mask

A regular expression (`regex`), a JSON schema (`json_schema`) and a grammar (`grammar`, the stories) become
automata over the bytes of the output; the tokenizer says which bytes each token adds.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import UsageError, show, unknown
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # the compilers, and the stories of the data room, are imported when one is asked for
    from pellucid.generation.constraints.token_mask import Constraint
    from pellucid.generation.constraints.token_table import TokenTable

    Build = Callable[[str, str, TokenTable, frozenset[int]], Constraint]


def _build_regex(name: str, pattern: str, tokens: "TokenTable", stop_ids: frozenset[int]) -> "Constraint":
    from pellucid.generation.constraints.regex import compile_regex
    from pellucid.generation.constraints.token_mask import TableConstraint

    return TableConstraint(name, compile_regex(pattern), tokens, stop_ids)


def _build_json(name: str, schema: str, tokens: "TokenTable", stop_ids: frozenset[int]) -> "Constraint":
    from pellucid.generation.constraints.json_schema import compile_json_schema
    from pellucid.generation.constraints.token_mask import TableConstraint

    return TableConstraint(name, compile_json_schema(schema), tokens, stop_ids)


def _build_grammar(name: str, grammar: str, tokens: "TokenTable", stop_ids: frozenset[int]) -> "Constraint":
    from pellucid.data.generated.stories import LEVELS
    from pellucid.generation.constraints.stories import StoryConstraint

    known = [f"stories:{level}" for level in LEVELS]
    if grammar not in known:
        raise UsageError(unknown("grammar", grammar, known))
    return StoryConstraint(name, grammar.partition(":")[2], tokens, stop_ids)


CONSTRAINTS: "dict[str, Build]" = {
    "regex": _build_regex,
    "json_schema": _build_json,
    "grammar": _build_grammar,
}
"""The settings of a request that constrain its output."""
KEPT = 8
"""Constraints that are kept for the next request."""
_LOCK = threading.Lock()
_KEPT: "OrderedDict[Any, Constraint]" = OrderedDict()


def compile_constraint(
    sampling: Sampling, tokenizer: Tokenizer | None, vocab_size: int, stop_ids: Iterable[int]
) -> "Constraint | None":
    """Returns what the output of a request must be, None where nothing is asked of it.

    Raises where the output could not be sure to be complete: a setting that cannot be read, a tokenizer that
    cannot spell it, or too few new tokens.
    """
    given = {kind: spec for kind in CONSTRAINTS if (spec := getattr(sampling, kind)) is not None}
    if not given:
        return None
    kind, spec = given.popitem()  # the settings are refused where there is more than one
    if tokenizer is None:
        raise UsageError(f"{kind} is about text, and this model has no tokenizer: use a model with one.")
    stops = frozenset(stop_ids)
    excluded = stops.union(
        sampling.banned_tokens, (id for id, bias in sampling.logit_bias.items() if bias == -float("inf"))
    )
    constraint = _find(kind, spec, tokenizer, vocab_size, stops, excluded)
    if sampling.max_new_tokens is not None:
        constraint.check_limit(sampling.max_new_tokens)
    return constraint


def _find(
    kind: str,
    spec: str,
    tokenizer: Tokenizer,
    vocab_size: int,
    stop_ids: frozenset[int],
    excluded: frozenset[int],
) -> "Constraint":
    """Returns the constraint that was made before, or makes it."""
    key = (kind, spec, tokenizer, vocab_size, stop_ids, excluded)
    with _LOCK:
        found = _KEPT.get(key)
        if found is None or found.is_full:  # requests that still run keep the old one
            from pellucid.generation.constraints.token_table import make_token_table

            tokens = make_token_table(tokenizer, vocab_size, excluded)
            found = CONSTRAINTS[kind](f"{kind}={show(spec)}", spec, tokens, stop_ids)
        _KEPT[key] = found
        _KEPT.move_to_end(key)
        if len(_KEPT) > KEPT:
            _KEPT.popitem(last=False)
    return found
