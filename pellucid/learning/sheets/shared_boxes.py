"""Shared parts: what stands in two boxes of a step is asked once, in a box of its own.

Of a softmax row these are the powers e^s and their sum; of its backward pass, Σ p·dp.
"""

from collections import Counter
from collections.abc import Mapping

from pellucid.explanation.rule import Rule, RuleCall, find_keys, transform, walk

WORTH_A_BOX = ("exp", "+", "max", "log", "sqrt", "power", "tanh", "erf", "divide", "cos", "sin")
"""The functions whose result is written down once where it is used twice; a product is not."""


def share_parts(step: str, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Returns the rules by key with each shared part replaced by its key `STEP~n`; the parts come first."""
    parts: dict[str, Rule] = {}
    made = dict(rules)
    while (part := _find_shared(list(made.values()))) is not None:
        key = f"{step}~{len(parts)}"
        made = {of: _replace(rule, part, key) for of, rule in made.items()}
        parts[key] = part
    return parts | made


def _replace(rule: Rule, part: Rule, key: str) -> Rule:
    return transform(rule, lambda found: key if found == part else found)


def _find_shared(rules: list[Rule]) -> Rule | None:
    """Returns the smallest part that stands in two of the rules; None where there is none."""
    counts: Counter[Rule] = Counter()
    for rule in rules:
        counts.update([*dict.fromkeys(part for part in walk(rule) if _is_worth_a_box(part))])
    shared = [part for part, count in counts.items() if count > 1]
    return min(shared, key=lambda part: sum(1 for _ in walk(part)), default=None)


def _is_worth_a_box(part: Rule) -> bool:
    return isinstance(part, RuleCall) and part.function in WORTH_A_BOX and any(find_keys(part))
