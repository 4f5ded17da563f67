"""Checks of arguments from Python: each returns the value, or raises a UsageError that names the parameter.

They run before anything is computed, so that a wrong type never becomes a library's error later on.

>>> check_int("max_new_tokens", 5, least=0)
5
"""

import contextlib
import math
import numbers
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, TypeVar

from pellucid.base.errors import UsageError, show, unknown
from pellucid.base.formatting import format_bytes, parse_bytes

Kind = TypeVar("Kind")
INT64 = (-(2**63), 2**63 - 1)
"""What a seed, an id or a size may be at all: the integers that a tensor holds."""
LARGEST_VOCABULARY = 2**24
"""Tokens of a tokenizer that is trained; the libraries allocate for all of them before they read a word. No
list of ids or names has more entries."""


def check_int(parameter: str, value: Any, least: int = INT64[0], most: int = INT64[1]) -> int:
    """Returns an integer in [least, most], also from NumPy or torch; a bool or a float is not one.

    >>> check_int("depth", "2", least=1)
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: depth must be a whole number ≥ 1, not '2'.
    """
    found = value if type(value) is int else to_int(value)
    if found is not None and least <= found <= most:
        return found
    raise UsageError(f"{parameter} must be {describe_int(least, most, found)}, not {show(value)}.")


def check_float(parameter: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Returns a finite float in [least, most], also from an integer or NumPy.

    >>> check_float("temperature", float("nan"), least=0)
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: temperature must be a finite number ≥ 0, not nan.
    """
    found = value if type(value) is float else to_float(value)
    if math.isfinite(found) and least <= found <= most:
        return found
    raise UsageError(f"{parameter} must be a finite number{format_range(least, most)}, not {show(value)}.")


def check_size(parameter: str, value: str, least: int, most: int) -> int:
    """Returns a number of bytes in [least, most] from a size such as 5MB.

    >>> check_size("--size", "5MB", least=1000, most=10**9)
    5000000
    """
    found = parse_bytes(value)
    if found is None or not least <= found <= most:
        bounds = f"from {format_bytes(least)} to {format_bytes(most)}"
        raise UsageError(f"{parameter} must be a size {bounds}, such as 5MB, not {show(value)}.")
    return found


def check_bool(parameter: str, value: Any) -> bool:
    """Returns True or False; 0, 1 and "no" are none of them."""
    if is_bool(value):
        return bool(value)
    raise UsageError(f"{parameter} must be True or False, not {show(value)}.")


def check_text(parameter: str, value: Any) -> str:
    """Returns a str; bytes are not text."""
    if isinstance(value, str):
        return value
    raise UsageError(f"{parameter} must be a text (str), not {show(value)}.")


def check_type(
    parameter: str, value: Any, kind: type[Kind] | tuple[type[Kind], ...], wanted: str, hint: str = ""
) -> Kind:
    """Returns a value of one of some types; `wanted` says in words what it must be, and `hint` what gives it.

    >>> check_type("clip", "1", (int, float), "a number")
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: clip must be a number, not '1'.
    """
    if isinstance(value, kind):
        return value
    raise UsageError(f"{parameter} must be {wanted}, not {show(value)}.{f' {hint}' * bool(hint)}")


def check_function(parameter: str, value: Any) -> Callable[..., Any]:
    """Returns what can be called."""
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise UsageError(f"{parameter} must be a function, not {show(value)}.")


def check_iterator(parameter: str, value: Any, wanted: str) -> Iterator[Any]:
    """Returns an iterator over what lists its entries; a text and bytes do not."""
    if not isinstance(value, str | bytes | bytearray | memoryview):
        with contextlib.suppress(TypeError):  # also of an array without axes
            return iter(value)
    raise UsageError(f"{parameter} must be {wanted}, not {show(value)}.")


def check_list(parameter: str, value: Any, wanted: str = "a list") -> list[Any]:
    """Returns the entries of a list or of whatever else lists them, as `check_iterator` does.

    >>> check_list("stop_ids", (1, 2)), check_list("stop_ids", {3})
    ([1, 2], [3])
    """
    found = list(islice(check_iterator(parameter, value, wanted), LARGEST_VOCABULARY + 1))
    if len(found) > LARGEST_VOCABULARY:
        raise UsageError(f"{parameter} must have at most {LARGEST_VOCABULARY:,} entries.")
    return found


def check_int_list(parameter: str, value: Any) -> list[int]:
    """Returns a list of integers, without a look at each where Python's alone are in it."""
    listed = check_list(parameter, value, "a list of ids")
    if all(type(one) is int for one in listed):
        return listed
    return [check_int(f"an entry of {parameter}", one) for one in listed]


def check_path(parameter: str, value: Any) -> str:
    """Returns a path as a str, from a str or a `pathlib.Path`."""
    if isinstance(value, str | os.PathLike) and isinstance(path := os.fspath(value), str):
        if path and "\0" not in path and _is_encodable(path):
            return path
        raise UsageError(f"{parameter} must be a path that a file can have, not {show(value)}.")
    raise UsageError(f"{parameter} must be a path (str or pathlib.Path), not {show(value)}.")


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def check_one_of(parameter: str, value: Any, known: Iterable[str]) -> str:
    """Returns one of the known names.

    >>> check_one_of("path", "egaer", ("eager", "fused"))
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: path must be one of eager, fused; got 'egaer'. Did you mean 'eager'?
    """
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    raise UsageError(unknown(parameter, value, names))


def count_entries(value: Sized) -> int:
    """Returns the length of a list, also of a range with more entries than `len` can say.

    >>> count_entries([4, 2]), count_entries(range(10**30)) > 10**18
    (2, True)
    """
    try:
        return len(value)
    except OverflowError:
        return sys.maxsize


def count_ids(given: Any) -> int:
    """Returns how many ids are given, in the longest row where there are several, without listing them; 0 of
    a text.

    >>> count_ids(range(10**8)), count_ids([[1, 2], [3], "a text"]), count_ids(range(0))
    (100000000, 2, 0)
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, str) and bool(given)
    if is_list and (isinstance(given[0], str) or _count_row(given[0])):
        return max(map(_count_row, given))
    return _count_row(given)


def _count_row(row: Any) -> int:
    """Returns the entries of a list, or of an array's last axis; 0 of anything else."""
    if shape := getattr(row, "shape", ()):
        return int(shape[-1])
    return count_entries(row) if isinstance(row, Sequence) and not isinstance(row, str | bytes) else 0


def to_list(value: Any) -> list[Any]:
    """Returns a list or a tuple as a list, and any other value as a list of that one.

    >>> to_list("a.txt"), to_list(("a.txt", "b.txt"))
    (['a.txt'], ['a.txt', 'b.txt'])
    """
    return list(value) if isinstance(value, list | tuple) else [value]


def is_bool(value: Any) -> bool:
    """Returns whether it is Python's or NumPy's bool, which Python also counts as the integers 0 and 1."""
    return type(value).__name__ in ("bool", "bool_")


def to_int(value: Any) -> int | None:
    """Returns an integer as Python's own, also from NumPy or torch; None of anything else.

    >>> to_int(3), to_int(True), to_int(3.0), to_int("3")
    (3, None, None, None)
    """
    try:
        return None if is_bool(value) else operator.index(value)
    except TypeError:
        return None


def to_float(value: Any) -> float:
    """Returns a number as Python's own float, infinite where it is too large; NaN of anything else.

    >>> to_float(3), to_float("3"), to_float(10**400)
    (3.0, nan, inf)
    """
    if not isinstance(value, numbers.Real) or is_bool(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if operator.gt(value, 0) else -math.inf


def describe_int(least: float, most: float, found: int | None = None) -> str:
    """Returns what an integer must be, with the limit of 64 bits where `found` is beyond it."""
    is_long = found is not None and (found < INT64[0] == least or found > INT64[1] == most)
    return f"a whole number{format_range(least, most)}{' of at most 64 bits' * is_long}"


def format_range(least: float, most: float) -> str:
    """Returns the bounds of a number in words; a bound that says nothing is omitted.

    >>> format_range(0, 4096), format_range(0.5, math.inf), format_range(*INT64)
    (' from 0 to 4,096', ' ≥ 0.5', '')
    """
    low, high = least not in (-math.inf, INT64[0]), most not in (math.inf, INT64[1])
    if low and high:
        return f" from {_format_limit(least)} to {_format_limit(most)}"
    return f" ≥ {_format_limit(least)}" if low else f" ≤ {_format_limit(most)}" if high else ""


def _format_limit(limit: float) -> str:
    if isinstance(limit, float) and abs(limit) >= 1e15:
        return f"{limit:g}"
    return f"{int(limit) if limit == int(limit) else limit:,}"
