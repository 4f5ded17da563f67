"""Digits that are printed and asked, so that the printed numbers determine every asked digit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pellucid.explanation.rule import Rule, compute, find_keys
from pellucid.learning.sheets.sheet import Given, format_power, trim_zeros
from pellucid.reference.op import Array

MOST_DIGITS = 6
"""The digits of a printed number at most, where fewer decimals can be asked."""


def is_exact(value: float) -> bool:
    """Tests whether a number is printed without rounding: it is whole, or has at most two decimals."""
    return abs(value) < 1e6 and value == round(value, 2)


def count_decimals(values: Iterable[float], digits: int) -> int:
    """Returns the decimals to ask of a group: `digits` while its largest number is below 10, fewer above and
    more below 0.1, so that it has about as many significant digits.

    >>> [count_decimals([value], 4) for value in (0.5, 3.0, 25.0, 0.04, 0.0)]
    [4, 4, 3, 5, 4]
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0 or 0.1 <= largest < 10:
        return digits
    power = math.floor(math.log10(largest))
    return max(digits - power if power > 0 else digits - power - 1, 0)


def format_given(value: float, digits: int) -> tuple[str, bool]:
    """Returns the text of a printed number with this many significant digits, and whether it is exact.

    >>> format_given(-0.5, 4), format_given(0.330238, 4), format_given(0.0000123456, 3)
    (('-0.5', True), ('0.3302', False), ('1.23e-5', False))
    """
    if is_exact(value):
        return trim_zeros(f"{value + 0.0:.2f}"), True
    if abs(value) < 1e-4:
        return format_power(value, digits), False
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{decimals}f}", False


def print_given(
    given: Mapping[str, tuple[float, str]],
    rules: Mapping[str, Rule],
    decimals: Mapping[str, int],
    focus: Sequence[str],
    right: Mapping[str, float],
    digits: int,
) -> tuple[dict[str, Given], dict[str, int]]:
    """Returns the given numbers (value, symbol) as printed, and the decimals to ask: with the fewest digits
    that determine the boxes.

    With every printed number moved by half a unit, the changes of a box added up, no box in `focus` may
    change its asked digits, and no other may move by half a unit; and every box must give its `right` value.
    Where that would need more than `MOST_DIGITS` digits, as for a number near the border of two roundings,
    one decimal less is asked of the boxes of that group.
    """
    derivatives = _differentiate({key: value for key, (value, _) in given.items()}, rules)
    asked, printed = dict(decimals), dict[str, Given]()
    for count in _count_up(digits):
        printed = {key: Given(*format_given(value, count), symbol) for key, (value, symbol) in given.items()}
        half_units = np.array([number.half_unit for number in printed.values()])
        changes = {key: float(np.abs(row) @ half_units) for key, row in derivatives.items()}
        unsure = _find_undetermined(printed, rules, asked, focus, right, changes)
        if not unsure:
            break
        if count == MOST_DIGITS:
            groups = {(_find_group(key), asked[key]) for key in unsure if asked[key] > 1}
            asked = {key: n - ((_find_group(key), n) in groups) for key, n in asked.items()}
    return printed, asked


def _count_up(digits: int) -> Iterator[int]:
    """Yields the digits to try: up to `MOST_DIGITS`, that a few times with fewer decimals, and then more."""
    yield from range(digits, MOST_DIGITS)
    yield from [MOST_DIGITS] * 4
    yield from range(max(digits, MOST_DIGITS) + 1, 13)


def _find_group(key: str) -> tuple[str, bool]:
    """Returns what has one number of decimals: the cells of a step, or its shared parts."""
    return key.partition("[")[0].partition("~")[0], "~" in key


def _find_undetermined(
    printed: Mapping[str, Given],
    rules: Mapping[str, Rule],
    decimals: Mapping[str, int],
    focus: Sequence[str],
    right: Mapping[str, float],
    changes: Mapping[str, float],
) -> list[str]:
    """Returns the boxes whose asked digits the printed numbers do not determine."""
    values, asked, found = {key: number.value for key, number in printed.items()}, set(focus), []
    for key, rule in rules.items():
        value, change, places = compute(rule, values), changes[key], decimals[key]
        values[key] = value
        is_wrong = _round(value, places) != _round(right[key], places)
        is_open = key in asked and _round(value - change, places) != _round(value + change, places)
        if is_wrong or is_open or change >= 0.5 * 10.0**-places:
            found.append(key)
    return found


def _round(value: float, decimals: int) -> float:
    return round(value, decimals) + 0.0


def _differentiate(given: Mapping[str, float], rules: Mapping[str, Rule]) -> dict[str, Array]:
    """Returns the derivative of each box with respect to every given number, by central differences of each
    rule and the chain rule."""
    values = dict(given)
    units = dict(zip(given, np.eye(len(given)), strict=True))
    derivatives: dict[str, Array] = {}
    for key, rule in rules.items():
        derivative = np.zeros(len(given))
        for read in dict.fromkeys(find_keys(rule)):
            value = values[read]
            h = 1e-6 * max(abs(value), 1e-3)
            values[read] = value + h  # in place: a copy of all numbers for each costs more than the rule
            high = compute(rule, values)
            values[read] = value - h
            low = compute(rule, values)
            values[read] = value
            derivative += (high - low) / (2 * h) * (units[read] if read in units else derivatives[read])
        derivatives[key], values[key] = np.nan_to_num(derivative), compute(rule, values)
    return derivatives
