"""Fields: a typed value from outside, read by one table wherever it comes from.

A TOML file, a JSON request, a query string, `key=value` of a command line and an argument from Python are all
read here. A field says what its value may be; a refusal names the key, what it must be, and what was given.

    rate = Field("lr", float, 3e-4, least=0, most=1, meaning="The learning rate.")
    rate.read("0.001", "optimizer.lr", text=True)                                           # 0.001

A type is int, float, str, bool, a union, tuple[X, ...], tuple[X, Y], Sequence[X], Mapping[K, V], Literal,
Any, a dataclass, or whatever has `read(value, path)`, such as a part. `Annotated[int, Range(0, 9)]` has
bounds, `Annotated[str, Length(80)]` a length, `Annotated[str, OneOf("a", "b")]` choices; a function in
it is what the field says beyond its type.
"""

import dataclasses
import functools
import inspect
import json
import math
import operator
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pellucid.base.arguments import (
    INT64,
    count_entries,
    describe_int,
    format_range,
    is_bool,
    to_float,
    to_int,
)
from pellucid.base.errors import ConfigError, PellucidError, UsageError, show, unknown

Made = TypeVar("Made")
Function = TypeVar("Function", bound=Callable[..., Any])
REQUIRED = inspect.Parameter.empty
"""The default of a field that must be given."""
MOST_PROBLEMS = 10
"""Errors of one table that are listed."""
_SCALARS = (int, float, bool, str)
_UNIONS = (Union, types.UnionType)
_LISTS = (tuple, list, Sequence)
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMES = {int: "integer", float: "number", bool: "boolean", str: "string", types.NoneType: "null"}
_PLURALS = {
    "a whole number": "whole numbers",
    "a finite number": "finite numbers",
    "a text": "texts",
    "a list": "lists",
}


class Range(NamedTuple):
    """The least and the largest value of a number; a float is finite, unless `most` is infinite."""

    least: float
    most: float | None = None


class Length(NamedTuple):
    """The largest and the least number of characters of a text, or of entries of a list or a table."""

    most: int
    least: int = 0


class Single(NamedTuple):
    """A list of which one entry alone stands for the list."""

    single: bool = True


class OneOf:
    """The values that there are."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices


@dataclass(frozen=True)
class Field:
    """One value: its name, what it may be, its default, and what it means.

    >>> Field("top_p", float, 1.0, least=0, most=1).read(2)
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: top_p must be a finite number from 0 to 1, not 2.
    """

    name: str
    type: Any = str
    default: Any = REQUIRED
    least: float | None = None
    """Of a number its least value; of a text, a list or a table its least length."""
    most: float | None = None
    choices: Collection[Any] = ()
    """The values that there are; of a mapping, the keys, each read as its value."""
    optional: bool = False
    """Whether None is a value."""
    single: bool = False
    """Whether a value that is not a list is a list of one."""
    words: str = ""
    """What a value must be, where the type does not say it."""
    meaning: str = ""
    example: Any = None
    then: Callable[[Any, str], Any] | None = None
    """What the field says beyond its type: takes the value and its path, and returns or refuses it."""
    bounds: tuple[float, float] = dataclasses.field(init=False, repr=False, compare=False)
    """The least and the largest value or length."""

    def __post_init__(self) -> None:
        kind, *marks = get_args(self.type) if get_origin(self.type) is Annotated else [self.type]
        found: dict[str, Any] = {"type": kind}
        for mark in marks:
            if isinstance(mark, OneOf):
                found["choices"] = mark.choices
            elif callable(mark):
                found["then"] = mark
            else:
                found |= mark._asdict()
        if get_origin(kind) is Literal:
            found |= {"type": str, "choices": get_args(kind)}
        for name, value in found.items():
            object.__setattr__(self, name, value)
        least, most = INT64 if self.type is int else (-math.inf, math.inf)
        bounds = (least if self.least is None else self.least, most if self.most is None else self.most)
        object.__setattr__(self, "bounds", bounds)

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def read(self, value: Any, path: str = "", text: bool = False, error: Any = UsageError) -> Any:
        """Returns the value in the field's type; raises an error that names its path.

        With `text` it comes from a query string or a command line: "6", "true".
        """
        path = path or self.name
        if value is None and self.optional:
            return None
        try:
            if self.choices:
                found = self._choose(value, path, text)
            elif self.type in _SCALARS:
                found = self._read_scalar(_parse(self.type, value) if text else value, path)
            else:
                found = self._convert(value, path, text)
            return found if self.then is None else self.then(found, path)
        except PellucidError as refusal:
            raise _name(refusal, path, error) from None

    def _choose(self, value: Any, path: str, text: bool) -> Any:
        given = _parse(self.type, value) if text else value
        for choice in self.choices:
            if type(choice) is type(given) and choice == given:
                return self.choices[choice] if isinstance(self.choices, Mapping) else choice
        raise UsageError(unknown(path, value, map(show_choice, self.choices)))

    def _convert(self, value: Any, path: str, text: bool) -> Any:
        kind, origin = self.type, get_origin(self.type) or self.type
        if kind is Any:
            return value
        if hasattr(kind, "read"):
            return kind.read(value, path)
        if origin in _UNIONS:
            return self._read_union(value, path, text)
        if origin in _LISTS:
            return self._read_list(value, path, text)
        if hasattr(kind, "__dataclass_fields__"):
            given = vars(value) if isinstance(value, kind) else value
            return read(fields_of(kind), given, path, kind, path=path, text=text)
        if _is_table(origin):
            return self._read_table(value, path, text)
        return self._read_scalar(value, path)

    def _read_scalar(self, value: Any, path: str) -> Any:
        kind, (least, most) = self.type, self.bounds
        found: Any
        if kind is int:
            found = value if type(value) is int else to_int(value)
            fits = found is not None and least <= found <= most
        elif kind is float:
            found = value if type(value) is float else to_float(value)
            fits = least <= found <= most and (self.most == math.inf or math.isfinite(found))
        else:
            found = bool(value) if is_bool(value) else value
            fits = isinstance(found, kind)
        if not fits:
            raise self._refuse(value, path)
        if kind is str:
            self._check_length(found, path, "characters")
        return found

    def _read_union(self, value: Any, path: str, text: bool) -> Any:
        """Returns the value in the first type that has it; a text last where a number is a text as well."""
        for option in sorted(get_args(self.type), key=lambda one: text and one is str):
            try:
                return to_field(option).read(value, path, text)
            except UsageError as refusal:
                if refusal.path != path:  # what is wrong is inside it
                    raise
        raise self._refuse(value, path)

    def _read_list(self, value: Any, path: str, text: bool) -> Any:
        make, kinds = tuple if get_origin(self.type) is tuple else list, get_args(self.type) or (Any,)
        if text and isinstance(value, str) and value.startswith(("[", "{")):
            value = _parse_json(value)
        is_list = (
            isinstance(value, list | tuple | set | frozenset | range) or getattr(value, "ndim", None) == 1
        )
        if self.single and not is_list:
            one = to_field(kinds[0])
            if one.type is str and not isinstance(value, str):
                raise self._refuse(value, path)
            return make([one.read(value, path, text)])
        if not is_list:
            raise self._refuse(value, path)
        if self.least is not None or self.most is not None:
            self._check_length(value, path, "entries")
        entries = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        if len(kinds) > 1 and kinds[-1] is not Ellipsis:
            if len(entries) != len(kinds):
                raise self._refuse(value, path)
        elif entries and type(entries[0]) in (int, float) and to_field(kinds[0])._has(entries):
            return make(entries)
        else:
            kinds = (kinds[0],) * len(entries)
        rows = zip(kinds, entries, strict=True)
        return make(to_field(kind).read(entry, f"{path}[{i}]", text) for i, (kind, entry) in enumerate(rows))

    def _has(self, entries: list[Any]) -> bool:
        """Returns whether all are Python's own numbers within bounds, without a reading of each."""
        if self.then is not None or self.choices or any(type(one) is not self.type for one in entries):
            return False
        least, most = self.bounds
        return bool(least <= min(entries) and max(entries) <= most) and all(map(math.isfinite, entries))

    def _read_table(self, value: Any, path: str, text: bool) -> dict[Any, Any]:
        if text and isinstance(value, str):
            value = _parse_json(value)
        if not isinstance(value, Mapping):
            raise self._refuse(value, path)
        self._check_length(value, path, "entries")
        if not get_args(self.type):
            return dict(value)
        key_type, value_type = get_args(self.type)
        found: dict[Any, Any] = {}
        for key, entry in value.items():
            name = int(key) if key_type is not str and is_id(key) else key
            name = to_field(key_type).read(name, f"{path}: a key")
            if name in found:
                raise UsageError(f"{path} has {show(name)} twice: give it one value.")
            found[name] = to_field(value_type).read(entry, f"{path}[{show(name)}]")
        return found

    def _check_length(self, value: Any, path: str, unit: str) -> None:
        least, most = self.bounds
        if not least <= (count := count_entries(value)) <= most:
            raise UsageError(f"{path} must have {_format_length(least, most)} {unit}, not {count:,}.")

    def _refuse(self, value: Any, path: str) -> UsageError:
        is_whole = isinstance(value, float) and value.is_integer() and "whole number" in describe(self)
        hint = f": use {value:.0f}" if is_whole and abs(value) < INT64[1] else ""
        wanted = describe_int(*self.bounds, to_int(value)) if self.type is int else describe(self)
        if isinstance(self.example, list | dict):
            wanted += f", such as {show(self.example)}"
        return UsageError(f"{path} must be {wanted}, not {show(value)}{hint}.")

    def schema(self) -> dict[str, Any]:
        """Returns the field as JSON Schema.

        >>> Field("rank", int, 0, least=0, most=64, meaning="Rank.").schema()
        {'type': 'integer', 'minimum': 0, 'maximum': 64, 'description': 'Rank.', 'default': 0}
        """
        kind, found, unit = get_origin(self.type) or self.type, dict[str, Any](), ""
        if kind in _UNIONS:
            found = {"anyOf": [to_field(option).schema() for option in get_args(self.type)]}
        elif kind in _LISTS:
            inner = to_field((*get_args(self.type), Any)[0])
            found, unit = {"type": "array", "items": inner.schema()}, "Items"
        elif _is_table(kind):
            found, unit = {"type": "object"}, "Properties"
        elif kind in _NAMES:
            found, unit = {"type": _NAMES[kind]}, "Length" if kind is str else "imum"
        for end, bound in (("min", self.least), ("max", self.most)):
            if bound is not None and math.isfinite(bound):
                found[end + unit] = bound
        found |= {"enum": list(self.choices)} if self.choices else {}
        found |= {"description": self.meaning} if self.meaning else {}
        return found | ({} if self.is_required else {"default": self.default})


def memoize(function: Function) -> Function:
    """Returns the function with a memory of its results; unlike `functools.cache` it keeps its signature."""
    return functools.cache(function)  # type: ignore[return-value]


@memoize
def to_field(kind: Any) -> Field:
    """Returns the field of a type, without a name."""
    return Field("", kind)


@memoize
def fields_of(kind: Any) -> tuple[Field, ...]:
    """Returns the fields of a dataclass; what one says beyond its type is in its metadata.

    >>> [field.name for field in fields_of(Field)][:3]
    ['name', 'type', 'default']
    """
    found = []
    for entry in dataclasses.fields(kind):
        more = {key: value for key, value in entry.metadata.items() if key in Field.__dataclass_fields__}
        found.append(
            Field(**{"name": entry.name, "type": entry.type, "default": _find_default(entry)} | more)
        )
    return tuple(found)


def fields_with(kind: Any, readers: Mapping[str, Callable[[Any, str], Any]]) -> tuple[Field, ...]:
    """Returns the fields of a dataclass, of which some are read by a function of the value and its path."""
    return tuple(
        dataclasses.replace(field, type=Any, then=readers[field.name]) if field.name in readers else field
        for field in fields_of(kind)
    )


def _find_default(entry: "dataclasses.Field[Any]") -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return REQUIRED if entry.default is dataclasses.MISSING else entry.default


@memoize
def fields_of_signature(function: Callable[..., Any], skip: int = 0) -> tuple[Field, ...]:
    """Returns the parameters of a function after the first `skip`; `X | None` is an optional X. A name that
    Python reserves, such as `from`, stands with an underscore in the signature.

    >>> def sample(count: Annotated[int, Range(1, 9)] = 4, from_: str | None = None) -> None: ...
    >>> [(field.name, field.most, field.default) for field in fields_of_signature(sample)]
    [('count', 9, 4), ('from', None, None)]
    """
    hints, found = get_type_hints(function, include_extras=True), []
    for name, parameter in list(inspect.signature(function).parameters.items())[skip:]:
        kind, default = hints.get(name, Any), parameter.default
        is_optional = get_origin(kind) in _UNIONS and types.NoneType in get_args(kind)
        if is_optional:
            kind = functools.reduce(
                operator.or_, (one for one in get_args(kind) if one is not types.NoneType)
            )
        found.append(Field(name.removesuffix("_"), kind, default, optional=is_optional))
    return tuple(found)


def read(
    fields: Iterable[Field],
    given: Any,
    what: str,
    make: Callable[..., Made] = dict,  # type: ignore[assignment]
    *,
    path: str = "",
    text: bool = False,
    error: Any = UsageError,
) -> Made:
    """Returns `make(**values)` of a table. Every key is a field, and every field without a default is given;
    all that is wrong is said at once.

    `what` names the table in messages ("a recipe"), `path` is the key under which it stands ("train"), or
    what else stands before a key in messages ("a.jsonl, line 3: ").

    >>> read([Field("warmup", int), Field("floor", float, 0.1)], {"warmup": 100, "floor": 0}, "a schedule")
    {'warmup': 100, 'floor': 0.0}
    >>> read([Field("warmup", int)], {"warmpu": 1.0, "warmup": 1.0}, "a schedule")
    Traceback (most recent call last):
    pellucid.base.errors.UsageError: 2 errors in a schedule:
      a key of a schedule must be one of warmup; got 'warmpu'. Did you mean 'warmup'?
      warmup must be a whole number, not 1.0: use 1.
    """
    known = {field.name: field for field in fields}
    values, problems = {}, list[Exception]()
    if not isinstance(given, Mapping):
        raise error(f"{what} must be a table of keys, not {show(given)}.")
    for key, value in given.items():
        place = f"{path}.{key}" if path and path[-1] != " " else f"{path}{key}"
        try:
            if key not in known:
                lacks = f"{what} has no keys: omit {show(key)}."
                raise locate(place, UsageError(unknown(f"a key of {what}", key, known) if known else lacks))
            values[key] = known[key].read(value, place, text, error)
        except (PellucidError, error) as refusal:
            problems.append(_name(refusal, place, error))
    needed = [field.name for field in known.values() if field.default is REQUIRED]
    if missing := [name for name in needed if name not in given]:
        problems.append(error(f"{what} needs {', '.join(needed)}; missing: {', '.join(missing)}."))
    if len(problems) > 1:
        lines = (f"  {problem}" for problem in problems[:MOST_PROBLEMS])
        joined = error("\n".join((f"{len(problems):,} errors in {what}:", *lines)))
        raise _name(joined, getattr(problems[0], "path", ""), error)
    if problems:
        raise problems[0]
    return make(**values)


def check(record: Any, fields: Iterable[Field], what: str, path: str = "", error: Any = ConfigError) -> None:
    """Reads each field of a frozen dataclass in its place."""
    values: dict[str, Any] = read(fields, vars(record), what, path=path, error=error)
    for name, value in values.items():
        object.__setattr__(record, name, value)


def locate(path: str, refusal: Exception) -> Exception:
    """Returns the refusal with the path of the value that is wrong."""
    refusal.path = path  # type: ignore[attr-defined]
    return refusal


def _name(refusal: Exception, path: str, error: Any) -> Exception:
    """Returns the refusal as an error of the class that the caller raises, with the path that is wrong."""
    known = getattr(refusal, "path", "")
    names_it = known or str(refusal).startswith(path)
    found: Exception = refusal
    if not isinstance(refusal, error):
        found = error(str(refusal) if names_it else f"{path}: {refusal}")
    return locate(known or path, found)


def describe(field: Field) -> str:
    """Returns what a value must be, in words.

    >>> describe(to_field(float | str)), describe(Field("n", int, least=1, most=64))
    ('a finite number or a text', 'a whole number from 1 to 64')
    >>> describe(Field("stop", tuple[str, ...], most=16))
    'a list of at most 16 texts'
    >>> describe(Field("only", tuple[str, ...], single=True))
    'a text or a list of texts'
    """
    kind, (least, most) = get_origin(field.type) or field.type, field.bounds
    of_length = "" if field.most is None else f" of {_format_length(least, most)}"
    if field.words:
        return field.words
    if field.choices:
        return f"one of {', '.join(map(show_choice, field.choices))}"
    if kind in _UNIONS:
        return " or ".join(describe(to_field(option)) for option in get_args(field.type))
    if kind is int:
        return describe_int(least, most)
    if kind is float:
        return f"{'a number' if field.most == math.inf else 'a finite number'}{format_range(least, most)}"
    if kind in _LISTS:
        inner = get_args(field.type) or (Any,)
        if len(inner) > 1 and inner[-1] is not Ellipsis:
            return f"a list of {len(inner)} values"
        plural, each = _describe_entries(inner[0])
        listed = (
            f"a list{of_length or ' of'} {plural}{each}" if of_length or plural != "entries" else "a list"
        )
        return f"{describe(to_field(inner[0]))} or {listed}" if field.single else listed
    if _is_table(kind):
        each = _describe_entries((*get_args(field.type), Any, Any)[1])[1]
        return f"a table{of_length} entries{each}" if of_length else f"a table{each}"
    words = {bool: "true or false", types.NoneType: "null", str: "a text", Any: "any value"}
    return words.get(kind, f"a {getattr(kind, '__name__', kind)}") + (of_length and f"{of_length} characters")


def _describe_entries(kind: Any) -> tuple[str, str]:
    """Returns the entries of a list in words, and their bounds: "texts", ", each of 1 to 80 characters"."""
    words = describe(to_field(kind))
    for one, several in _PLURALS.items():
        if words.startswith(one) and " or " not in words:
            bounds = words.removeprefix(one)
            return several, f", each{bounds}" if bounds else ""
    return "entries", ""


def show_choice(value: Any) -> str:
    """Returns a choice as a file has it, without quotes: `auto`, `true`."""
    return value if isinstance(value, str) else json.dumps(value)


def _format_length(least: float, most: float) -> str:
    return f"{least:,.0f} to {most:,.0f}" if least > 0 else f"at most {most:,.0f}"


def _parse(kind: Any, value: Any) -> Any:
    """Returns a number or a truth value from a text; the text where it is neither."""
    if not isinstance(value, str):
        return value
    if kind is int and _INTEGER.fullmatch(value):
        return int(value)
    if kind is float and _FLOAT.fullmatch(value):
        return float(value)
    return _TRUTH.get(value, value) if kind is bool else value


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def check_utf8(value: str, path: str) -> str:
    """Returns a text that has no half of a surrogate pair."""
    if not value.isascii() and _SURROGATE.search(value):
        raise UsageError(f"{path} must be a text that UTF-8 can write, not {show(value)}.")
    return value


def is_id(value: Any) -> bool:
    """Returns whether a text is the digits of an id.

    >>> is_id("262"), is_id(" the"), is_id("٣")
    (True, False, False)
    """
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
