"""Strict reading of dataclasses from tables, as TOML and JSON give them.

Every key must be a field, every field without a default must be given, and every value must have the type of
its field. Nothing is ignored and nothing is converted but an integer to a float and a list to a tuple.
"""

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pellucid.base.arguments import INT64
from pellucid.base.errors import ConfigError, show, unknown

Record = TypeVar("Record")
Convert = Callable[["dataclasses.Field[Any]", Any, str], Any]
"""Returns the value of a field, given the field, what the table says and the key's full name; NotImplemented
where the field's type says how."""
_WRONG = object()
_WORDS = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "a table",
    Mapping: "a table",
    types.NoneType: "null",
}


def read(
    kind: type[Record],
    given: Any,
    what: str,
    *,
    path: str = "",
    error: type[Exception] = ConfigError,
    convert: Convert | None = None,
) -> Record:
    """Returns a dataclass from a table; a field that is itself a dataclass is read from a table in it.

    `what` names the table in messages ("a recipe"); `path` is the key under which it stands ("train").

    >>> @dataclasses.dataclass
    ... class Schedule:
    ...     warmup: int
    ...     floor: float = 0.1
    >>> read(Schedule, {"warmup": 100, "floor": 0}, "a schedule")
    Schedule(warmup=100, floor=0.0)
    >>> read(Schedule, {"warmpu": 100}, "a schedule")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    pellucid.base.errors.ConfigError: a key of a schedule must be one of warmup, floor; got 'warmpu'. Did …
    """
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    check_keys(given, fields, what, required_fields(kind), error)
    values = {}
    for key, value in given.items():
        name = f"{path}.{key}" if path else key
        found = NotImplemented if convert is None else convert(fields[key], value, name)
        values[key] = (
            _read_field(fields[key], value, name, error, convert) if found is NotImplemented else found
        )
    return kind(**values)


def _read_field(
    field: "dataclasses.Field[Any]", value: Any, name: str, error: type[Exception], convert: Convert | None
) -> Any:
    if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
        return read(field.type, value, name, path=name, error=error, convert=convert)
    return check_value(field.type, value, name, error)


def required_fields(kind: Any) -> list[str]:
    """Returns the fields of a dataclass that have no default."""
    missing = dataclasses.MISSING
    return [
        entry.name
        for entry in dataclasses.fields(kind)
        if entry.default is missing and entry.default_factory is missing
    ]


def check_keys(
    given: Any,
    known: Iterable[str],
    what: str,
    needed: Iterable[str] = (),
    error: type[Exception] = ConfigError,
) -> None:
    """Raises unless `given` is a table that has no key but the known ones, and all that are needed."""
    if not isinstance(given, Mapping):
        raise error(f"{what} must be a table of keys, not {show(given)}.")
    names, wanted = list(known), list(needed)
    for key in given:
        if key not in names:
            raise error(unknown(f"a key of {what}", key, names))
    if missing := [key for key in wanted if key not in given]:
        raise error(f"{what} needs {', '.join(wanted)}; missing: {', '.join(missing)}.")


def check_value(kind: Any, value: Any, name: str, error: type[Exception] = ConfigError) -> Any:
    """Returns a value in the type of its field: int, float, str, bool, None, tuples, tables, or a union.

    Integers have at most 64 bits; a float may be infinite and is never NaN.

    >>> check_value(float | str, 3, "validation"), check_value(tuple[str, ...], ["a"], "only")
    (3.0, ('a',))
    """
    options = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for option in options:
        if (found := _convert(option, value)) is not _WRONG:
            return found
    whole = int in options and isinstance(value, float) and value.is_integer()
    hint = f": use {value:.0f}" if whole else ""
    raise error(f"{name} must be {' or '.join(map(describe_type, options))}, not {show(value)}{hint}.")


def _convert(kind: Any, value: Any) -> Any:
    """Returns the value as that type, or _WRONG."""
    if kind is Any:
        return value
    if get_origin(kind) is tuple:
        return _convert_tuple(get_args(kind), value)
    origin = get_origin(kind) or kind
    if kind is float and type(value) is int:
        return float(value) if abs(value) < 2**1000 else float("inf")
    if kind is int:
        return value if type(value) is int and INT64[0] <= value <= INT64[1] else _WRONG
    if kind is float:
        return value if type(value) is float and value == value else _WRONG
    return value if isinstance(value, origin) else _WRONG


def _convert_tuple(kinds: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _WRONG
    wanted = [kinds[0]] * len(value) if kinds[-1] is Ellipsis else list(kinds)
    if len(wanted) != len(value):
        return _WRONG
    found = tuple(_convert(kind, entry) for kind, entry in zip(wanted, value, strict=True))
    return _WRONG if _WRONG in found else found


def describe_type(kind: Any) -> str:
    """Returns a type in words: "an integer", "a list of numbers"."""
    if get_origin(kind) is tuple:
        inner, *rest = get_args(kind)
        many = rest == [Ellipsis]
        described = describe_type(inner).removeprefix("an ").removeprefix("a ")
        return f"a list of {described}s" if many else f"a list of {1 + len(rest)} values"
    return _WORDS.get(get_origin(kind) or kind, getattr(kind, "__name__", str(kind)))
