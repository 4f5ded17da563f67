"""Questions: `ask(session, "cell", {"at": "probs[t=1,v=2]"})` returns plain data, the same for every caller.

The live page fetches an answer, an exported page embeds it, and a test compares it with the trace. A question
is a file in `questions/`; the signature of its `answer` says what each parameter is and how large it may be.
"""

import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from pellucid.base.arguments import check_bool, check_float, check_int
from pellucid.base.errors import UsageError, show, unknown
from pellucid.server.explorer import find_question

if TYPE_CHECKING:
    from pellucid.server.explorer.session import Session

LARGEST_TEXT = 4096
"""Characters of a text parameter without a bound of its own."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class Range(NamedTuple):
    """The least and the largest value of a number."""

    least: float
    most: float


class Length(NamedTuple):
    """The largest number of characters of a text, or of entries of a list."""

    most: int


class QuestionParameter(NamedTuple):
    """One parameter of a question, as the signature of its `answer` declares it."""

    keyword: str
    """Its name in the signature."""
    type: Any
    bound: Range | Length | None
    is_optional: bool
    default: Any

    @property
    def name(self) -> str:
        """Its name in a question: `from` where the signature has `from_`, since Python reserves the word."""
        return self.keyword.removesuffix("_")

    @property
    def is_looked_up(self) -> bool:
        """Returns whether the session holds it under an id: its type has `look_up(session, id)`."""
        return hasattr(self.type, "look_up")


def get_method(name: str) -> str:
    """Returns "GET", or "POST" for a question that changes something or computes for long."""
    method: str = getattr(find_question(name), "METHOD", "GET")
    return method


def ask(
    session: "Session",
    name: str,
    given: Mapping[str, Any] = types.MappingProxyType({}),
    is_text: bool = False,
) -> dict[str, Any]:
    """Returns the answer to a question as plain data. Whatever is given, the only errors are those with a
    message for the reader.

    `given` has the parameters by name. With `is_text` every parameter is a text, as a URL has it: "6",
    "true".
    """
    answer = find_question(_check_text("the name of a question", name, Length(64))).answer
    known, values = read_signature(answer), {}
    names = [parameter.name for parameter in known]
    if more := [key for key in given if key not in names]:
        raise UsageError(
            unknown(f"a parameter of the question {name}", more[0], names)
            if names
            else f"the question {name} has no parameters; omit {show(more[0])}."
        )
    with np.errstate(all="ignore"):  # an edit may make numbers infinite; the answer shows that they are
        for parameter in known:
            if parameter.name in given:
                values[parameter.keyword] = _read(session, parameter, given[parameter.name], is_text)
            elif parameter.default is inspect.Parameter.empty:
                if not parameter.is_looked_up:
                    raise UsageError(f"the question {name} needs {parameter.name}.")
                values[parameter.keyword] = parameter.type.look_up(session, None)
        return to_json(answer(session, **values))  # type: ignore[no-any-return]


@functools.cache
def read_signature(answer: Callable[..., Any]) -> tuple[QuestionParameter, ...]:
    """Returns the parameters of an `answer` after the session."""
    hints = get_type_hints(answer, include_extras=True)
    found = []
    for name, parameter in list(inspect.signature(answer).parameters.items())[1:]:
        hint, bound, is_optional = hints[name], None, False
        if get_origin(hint) in (Union, types.UnionType):
            (inner,) = (part for part in get_args(hint) if part is not types.NoneType)
            is_optional, hint = True, inner
        if get_origin(hint) is Annotated:
            hint, bound = get_args(hint)[:2]
        found.append(QuestionParameter(name, hint, bound, is_optional, parameter.default))
    return tuple(found)


def _read(session: "Session", parameter: QuestionParameter, given: Any, is_text: bool) -> Any:
    """Returns a parameter's value, checked against its declaration."""
    name, type, bound = parameter.name, parameter.type, parameter.bound
    if given is None and parameter.is_optional:
        return None
    if parameter.is_looked_up:
        is_held = isinstance(given, type)
        return given if is_held else type.look_up(session, _check_text(name, given, Length(64)))
    if type is str:
        return _check_text(name, given, bound)
    if is_text:
        given = _parse(type, _check_text(name, given, bound))
    if type is bool:
        return check_bool(name, given)
    if type is int:
        return check_int(name, given, *(map(int, bound) if isinstance(bound, Range) else (0, 2**31)))
    if type is float:
        return check_float(name, given, *(bound if isinstance(bound, Range) else ()))
    most = bound.most if isinstance(bound, Length) else LARGEST_TEXT
    if not isinstance(given, list | tuple) or len(given) > most:
        raise UsageError(f"{name} must be a list of at most {most:,} whole numbers, not {show(given)}.")
    return [check_int(f"{name}[{i}]", entry, 0, 2**31) for i, entry in enumerate(given)]


def _check_text(name: str, given: Any, bound: Any) -> str:
    most = bound.most if isinstance(bound, Length) else LARGEST_TEXT
    if not isinstance(given, str) or len(given) > most:
        raise UsageError(f"{name} must be a text of at most {most:,} characters, not {show(given)}.")
    if _SURROGATE.search(given):
        raise UsageError(f"{name} holds half of a surrogate pair, which UTF-8 cannot encode: {show(given)}.")
    return given


def _parse(type: Any, text: str) -> Any:
    """Returns a number or a truth value from the text of a URL; the text where it is neither. A list is
    given in JSON alone."""
    if type is bool:
        return _TRUTH.get(text, text)
    if type is int:
        return int(text) if _INTEGER.fullmatch(text) else text
    if type is float:
        return float(text) if _FLOAT.fullmatch(text) else text
    return text


def to_json(data: Any) -> Any:
    """Returns data that JSON can hold: plain numbers and lists, "inf", "-inf" and "nan" as texts."""
    if isinstance(data, dict):
        return {key: to_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_json(value) for value in data]
    if isinstance(data, np.ndarray | np.generic):
        return to_json(data.tolist())
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    return data
