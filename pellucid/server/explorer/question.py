"""Questions: `ask(session, "cell", {"at": "probs[t=1,v=2]"})` returns plain data, the same for every caller.

The live page fetches an answer, an exported page embeds it, and a test compares it with the trace. A question
is a file in `questions/`; the signature of its `answer` says what each parameter is and how large it may be.
"""

import dataclasses
import keyword
import math
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.schema import Field, check_utf8, fields_of_signature, memoize, read
from pellucid.server.explorer import find_question

if TYPE_CHECKING:
    from pellucid.server.explorer.session import Session

LARGEST_TEXT = 4096
"""Characters of a text, or entries of a list, without a bound of its own."""
_ID = Field("", str, most=64, then=check_utf8)


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
    answer = find_question(_ID.read(name, "the name of a question")).answer
    fields = [_bind(session, field) if is_looked_up(field) else field for field in read_signature(answer)]
    with np.errstate(all="ignore"):  # an edit may make numbers infinite; the answer shows that they are
        values: dict[str, Any] = read(fields, given, f"the question {name}", text=is_text)
        for field in read_signature(answer):
            if is_looked_up(field) and field.is_required and field.name not in values:
                values[field.name] = field.type.look_up(session, None)
        called = {f"{key}_" if keyword.iskeyword(key) else key: value for key, value in values.items()}
        return to_json(answer(session, **called))  # type: ignore[no-any-return]


@memoize
def read_signature(answer: Callable[..., Any]) -> tuple[Field, ...]:
    """Returns the parameters of an `answer` after the session."""
    return tuple(
        field
        if field.type in (int, float, bool)
        else dataclasses.replace(
            field,
            most=LARGEST_TEXT if field.most is None else field.most,
            then=check_utf8 if field.type is str else None,
        )
        for field in fields_of_signature(answer, 1)
    )


def is_looked_up(field: Field) -> bool:
    """Returns whether the session holds it under an id: its type has `look_up(session, id)`."""
    return hasattr(field.type, "look_up")


def _bind(session: "Session", field: Field) -> Field:
    """Returns the field of what the session holds, given as that itself or by its id."""

    def look_up(value: Any, path: str) -> Any:
        return value if isinstance(value, field.type) else field.type.look_up(session, _ID.read(value, path))

    return dataclasses.replace(field, type=Any, default=None, then=look_up)


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
