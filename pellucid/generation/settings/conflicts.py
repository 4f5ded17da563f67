"""Settings that cannot be combined, as one table: which, when, and what would work."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

CONSTRAINTS = ("regex", "json_schema", "grammar")
"""Settings of which each says by itself what the whole output is."""


class Conflict(NamedTuple):
    """Settings that cannot be combined, and the message that says why and what would work."""

    names: tuple[str, ...]
    message: str


class Rule(NamedTuple):
    """When settings cannot be combined; the message is formatted with the settings `s`."""

    names: tuple[str, ...]
    applies: Callable[[Any], bool]
    message: str


def _are_set(first: str, second: str) -> Callable[[Any], bool]:
    return lambda s: all(getattr(s, name) not in (None, (), 0) for name in (first, second))


RULES = (
    Rule(
        ("beams", "temperature"),
        lambda s: s.beams > 1 and s.temperature > 0,
        "beams={s.beams} does not go with temperature={s.temperature:g}: beam search draws nothing. Use "
        "temperature=0, or beams=1.",
    ),
    Rule(
        ("beams", "context"),
        lambda s: s.beams > 1 and s.context != "refuse",
        "beams={s.beams} does not go with context={s.context!r}: beams are compared by the probability of "
        'their whole texts. Use context="refuse", or beams=1.',
    ),
    Rule(
        ("n", "beams"),
        lambda s: s.n > s.beams > 1,
        "n={s.n} is more than beams={s.beams}, and each text is one of the beams: use beams={s.n}.",
    ),
    Rule(
        ("n", "temperature"),
        lambda s: s.n > s.beams == 1 and s.temperature == 0,
        "n={s.n} texts are the same one at temperature=0: use a temperature such as 0.8, or beams={s.n}.",
    ),
    Rule(
        ("typical_p", "temperature"),
        lambda s: s.typical_p < 1 and s.temperature == 0,
        "typical_p={s.typical_p:g} does not go with temperature=0, which takes the most probable token, and "
        "typical sampling may remove it: use a temperature such as 0.8, or omit typical_p.",
    ),
    Rule(
        ("min_new_tokens", "max_new_tokens"),
        lambda s: s.max_new_tokens is not None and s.min_new_tokens > s.max_new_tokens,
        "min_new_tokens={s.min_new_tokens} is more than max_new_tokens={s.max_new_tokens}: use at most as "
        "many.",
    ),
    Rule(
        ("forced_tokens", "max_new_tokens"),
        lambda s: s.max_new_tokens is not None and len(s.forced_tokens) > s.max_new_tokens,
        "forced_tokens has more tokens than max_new_tokens={s.max_new_tokens}: force fewer of them.",
    ),
    Rule(
        ("forced_tokens", "banned_tokens"),
        lambda s: not set(s.forced_tokens).isdisjoint(s.banned_tokens),
        "forced_tokens has a token that banned_tokens has as well: omit it in one of them.",
    ),
    Rule(
        ("context", "keep"),
        lambda s: s.context == "roll" and not s.keep,
        'context="roll" keeps the first `keep` tokens, and keep is 0: use keep=16, or context="crop".',
    ),
    Rule(
        ("keep", "context"),
        lambda s: s.context != "roll" and s.keep > 0,
        'keep={s.keep} needs context="roll", and context is {s.context!r}: omit keep, or use context="roll".',
    ),
    *(
        Rule(
            (first, second),
            _are_set(first, second),
            f"{first} does not go with {second}, which says by itself what the output is: omit one of them.",
        )
        for first, second in (CONSTRAINTS[:2], CONSTRAINTS[1:], CONSTRAINTS[::2])
    ),
    *(
        Rule(
            (name, constraint),
            _are_set(name, constraint),
            f"{name} does not go with {constraint}, which says by itself how the output begins and where it "
            f"ends: omit {name}.",
        )
        for name in ("forced_tokens", "stop", "min_new_tokens")
        for constraint in CONSTRAINTS
    ),
)


def find_conflicts(settings: Any) -> Iterator[Conflict]:
    """Yields the settings of a record that cannot be combined."""
    for names, applies, message in RULES:
        if applies(settings):
            yield Conflict(names, message.format(s=settings))


INEFFECTIVE = {
    **{key: {"temperature": 0, "beams": 1} for key in ("top_k", "top_p", "min_p")},
    **{key: {"beams": 1} for key in ("length_penalty", "early_stopping")},
}
"""Settings that change nothing where others have these values: temperature 0 without beams takes the most
probable token, which these samplers never remove."""


def find_ineffective(settings: Any, names: Iterable[str]) -> list[str]:
    """Returns a sentence for each of the named settings that changes nothing.

    >>> from types import SimpleNamespace
    >>> find_ineffective(SimpleNamespace(temperature=0, beams=1, top_p=0.9), ["top_p"])
    ['top_p changes nothing at temperature 0']
    """
    found = []
    for name in names:
        where = INEFFECTIVE.get(name, {})
        if where and all(getattr(settings, other) == value for other, value in where.items()):
            other, value = next(iter(where.items()))
            found.append(f"{name} changes nothing at {other} {value}")
    return found


def drop_conflicts(
    weak: Mapping[str, Any], strong: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the weak settings without those that cannot be combined with the strong ones or with each
    other; all values are as the record holds them."""
    kept = dict(weak)
    while True:
        values = SimpleNamespace(**{**defaults, **kept, **strong})
        clashing = [
            name
            for names, _ in find_conflicts(values)
            for name in names
            if name in kept and name not in strong
        ]
        if not clashing:
            return kept
        for name in clashing:
            kept.pop(name, None)
