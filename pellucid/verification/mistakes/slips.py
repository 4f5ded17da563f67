"""Slips: the wrong rules for a box that follow from its right rule alone, by rewriting it.

A slip is specific where few numbers fit it. Any number of terms can be lost from a sum, so a lost term, a
neighboring cell or a skipped step says little, and counts only where nothing specific fits.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pellucid.explanation.rule import Rule, RuleCall, find_keys, is_call, simplify, transform, walk


class Slip(NamedTuple):
    """A wrong rule for a box, under the name of its mistake."""

    name: str
    rule: Rule
    is_specific: bool


SIGN_LOST = "sign lost"

Rewrite = Callable[[Rule], Iterator[Rule]]
"""Yields the wrong rules that a slip makes of a right one; none where it does not apply."""


def find_slips(rule: Rule, neighbors: Iterable[Rule] = ()) -> Iterator[Slip]:
    """Yields the slips of a box with this rule, the specific ones first, no wrong rule twice and none that is
    the right one; `neighbors` are the rules, or the keys, of the neighboring cells."""
    rule = simplify(rule)
    seen = {rule}
    for name, rewrite, is_specific in SLIPS_OF_RULES:
        for wrong in map(simplify, rewrite(rule)):
            if wrong not in seen:
                seen.add(wrong)
                yield Slip(name, wrong, is_specific)
    for wrong in map(simplify, neighbors):
        if wrong not in seen:
            seen.add(wrong)
            yield Slip("neighboring cell", wrong, False)


def are_neighbors(key: str, other: str) -> bool:
    """Tests whether two keys are cells of one value whose indices differ in one axis.

    >>> are_neighbors("S[t=1,s=0]", "S[t=1,s=1]"), are_neighbors("S[t=0,s=0]", "S[t=1,s=1]")
    (True, False)
    """
    (name, _, places), (of, _, others) = key.partition("["), other.partition("[")
    if name != of or not places or "~" in key + other:
        return False
    pairs = list(zip(places.split(","), others.split(","), strict=False))
    return sum(a.rstrip("]") != b.rstrip("]") for a, b in pairs) == 1


# ---- rewriting


def _everywhere(change: Callable[[RuleCall], Rule]) -> Rewrite:
    """Returns the rewrite of every part of a rule at once."""

    def rewrite(rule: Rule) -> Iterator[Rule]:
        yield transform(rule, lambda part: change(part) if isinstance(part, RuleCall) else part)

    return rewrite


def _one_at_a_time(change: Callable[[RuleCall], Iterable[Rule]]) -> Rewrite:
    """Returns the rewrite of one part of a rule at a time, the outermost first."""

    def rewrite(rule: Rule) -> Iterator[Rule]:
        for part in dict.fromkeys(walk(rule)):
            for wrong in change(part) if isinstance(part, RuleCall) else ():
                yield replace_part(rule, part, wrong)

    return rewrite


def replace_part(rule: Rule, part: Rule, other: Rule) -> Rule:
    """Returns the rule with another rule wherever one of its parts stands."""
    if rule == part:
        return other
    if isinstance(rule, RuleCall):
        return RuleCall(rule.function, tuple(replace_part(arg, part, other) for arg in rule.args))
    return rule


def _rename(function: str, other: str) -> Rewrite:
    return _everywhere(lambda call: RuleCall(other, call.args) if call.function == function else call)


def _is_constant(rule: Rule) -> bool:
    return not any(True for _ in find_keys(rule))


def _omit_factor(rule: Rule) -> Iterator[Rule]:
    """Yields the rule without one factor, key or part, of its product; a sum of products has no such slip."""
    products = [part for part in walk(rule) if is_call(part, "multiply") and len(_find_factors(part)) > 1]
    if len(products) == 1:
        for lost in _find_factors(products[0]):
            kept = tuple(arg for arg in products[0].args if arg is not lost)
            yield replace_part(rule, products[0], RuleCall("multiply", kept))


def _find_factors(product: RuleCall) -> list[Rule]:
    return [arg for arg in product.args if not _is_constant(arg)]


def _omit_term(call: RuleCall) -> Iterator[Rule]:
    if call.function in ("+", "add") and len(call.args) <= MOST_TERMS:
        for i in range(len(call.args)):
            yield RuleCall("+", call.args[:i] + call.args[i + 1 :])
    elif call.function == "subtract":
        yield call.args[0]
        yield RuleCall("negative", call.args[1:])


def _omit_power(call: RuleCall) -> Rule:
    return call.args[0] if call.function == "power" and call.args[1] in (2.0, 3.0) else call


def _omit_root(call: RuleCall) -> Rule:
    if call.function == "sqrt":
        return call.args[0]
    if call.function == "power" and call.args[1] == -0.5:
        return RuleCall("power", (call.args[0], -1.0))
    return call.args[0] if call.function == "power" and call.args[1] == 0.5 else call


def _omit_reciprocal(call: RuleCall) -> Rule:
    if call.function == "power" and call.args[1] == -0.5:
        return RuleCall("power", (call.args[0], 0.5))
    is_reciprocal = call.function == "divide" and call.args[0] == 1.0 and not _is_constant(call.args[1])
    return call.args[1] if is_reciprocal else call


def _omit_division(by_constant: bool) -> Rewrite:
    def change(call: RuleCall) -> Iterator[Rule]:
        if call.function == "divide" and _is_constant(call.args[1]) == by_constant and call.args[0] != 1.0:
            yield call.args[0]

    return _one_at_a_time(change)


def _add(call: RuleCall) -> Iterator[Rule]:
    if call.function == "subtract":
        yield RuleCall("+", call.args)


def _swap_branches(call: RuleCall) -> Rule:
    if call.function != "choose":
        return call
    condition, yes, no = call.args
    return RuleCall("choose", (condition, no, yes))


def _change_sign(rule: Rule) -> Iterator[Rule]:
    yield rule.args[0] if is_call(rule, "negative") else RuleCall("negative", (rule,))


def _skip_step(rule: Rule) -> Iterator[Rule]:
    """Yields the first number that a rule reads: the one that its step changes."""
    keys = [*dict.fromkeys(find_keys(rule))]
    if 0 < len(keys) <= MOST_KEYS:
        yield keys[0]


MOST_TERMS = 64
"""Of a longer sum, some term is missing in almost any wrong number."""
MOST_KEYS = 3
"""A step that reads more numbers than this combines them, and changes none in particular."""

SLIPS_OF_RULES: tuple[tuple[str, Rewrite, bool], ...] = (
    ("e^ omitted", _everywhere(lambda call: call.args[0] if call.function == "exp" else call), True),
    ("power of 10 for e", _rename("exp", "pow10"), True),
    ("logarithm to base 10", _rename("log", "log10"), True),
    ("not divided by the sum", _omit_division(by_constant=False), True),
    ("sum instead of mean", _omit_division(by_constant=True), True),
    ("root omitted", _everywhere(_omit_root), True),
    ("reciprocal omitted", _everywhere(_omit_reciprocal), True),
    ("power omitted", _everywhere(_omit_power), True),
    ("factor of a product missing", _omit_factor, True),
    (SIGN_LOST, _change_sign, True),
    ("added instead of subtracted", _one_at_a_time(_add), True),
    ("branches swapped", _everywhere(_swap_branches), True),
    ("term of the sum missing", _one_at_a_time(_omit_term), False),
    ("step skipped", _skip_step, False),
)
"""Each slip: its name, its rewrite, and whether it is specific."""
