"""A field of a request: what its value may be, its default, and whether it is used, ignored or refused.

Every error names the place of the value that is wrong, such as messages[3].content[0].type. null is a field
that is not given. `server/openai/fields.py` is the table of all fields.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Literal

from pellucid.base.arguments import LARGEST_VOCABULARY
from pellucid.base.errors import UsageError, did_you_mean, show
from pellucid.base.schema import Field, describe, locate
from pellucid.generation.settings.table import TokenId
from pellucid.server.http.limits import LIMITS

Fate = Literal["used", "ignored", "refused"]
MOST_CHARACTERS = LIMITS.body_bytes
"""Of a text: as many as a body holds."""
MOST_IDS = 2**20
"""Of one prompt."""
MOST_NAME = 80
"""Characters of an unknown field's name that are repeated in the answer, and compared with the known ones."""


@dataclass(frozen=True)
class RequestField(Field):
    """A field of a request, or of an object in one; its meaning may be why it is ignored or refused."""

    default: Any = None
    fate: Fate = "used"
    default_text: str = ""
    """The default in words, where it is not a value."""
    inner: "RequestObject | None" = None
    """The object that it is, or of which it is a list."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why a text is refused that other servers know."""
    neutral: tuple[Any, ...] = ()
    """Values of a refused field that ask for nothing, and are accepted."""
    same_as: str = ""
    """The field whose value is neutral as well."""
    same_default: Any = None
    setting: str = ""
    """The setting of `Sampling` that it gives; it has no value where it is not given."""

    @property
    def text(self) -> str:
        """The type with its bounds, for a page of documentation."""
        return re.sub("^an? ", "", describe(self))

    def read(self, value: Any, path: str = "", text: bool = False, error: Any = UsageError) -> Any:
        """Returns the value as the server uses it; of a setting, the field is at fault and never an entry."""
        if isinstance(value, str) and value in self.refusals:
            raise locate(path, UsageError(f"{path} cannot be {value!r} here. {self.refusals[value]}"))
        try:
            return super().read(value, path, text, error)
        except UsageError as refusal:
            if self.setting and self.inner is None:
                refusal.path = path
            raise

    def is_neutral(self, value: Any, body: Mapping[str, Any]) -> bool:
        """Returns whether a value of a refused field asks for nothing."""
        accepted = list(self.neutral)
        if self.same_as:
            other = body.get(self.same_as)
            accepted.append(self.same_default if other is None else other)
        return any(type(value) is type(one) and value == one for one in accepted)  # True is not 1


RequestFields = Mapping[str, RequestField]


@dataclass(frozen=True, eq=False)
class RequestObject:
    """The type of an object with fields of its own; `what` names it in messages."""

    what: str
    fields: RequestFields

    def read(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise locate(path, UsageError(f"{path} must be an object, not {show(value)}."))
        return read_object(self.fields, value, self.what, f"{path}.")


def list_of(inner: RequestObject) -> Any:
    """Returns the type of a list of objects."""
    return GenericAlias(list, (inner,))


TEXT = Field("", str, most=MOST_CHARACTERS)
IDS = Field("", list[TokenId], least=1, most=MOST_IDS)


def read_prompts(most: int) -> Callable[[Any, str], list[str | list[int]]]:
    """Returns the reader of one prompt or several, each a text or a list of ids; they become a list."""

    def read_one(value: Any, path: str) -> Any:
        return (TEXT if isinstance(value, str) else IDS).read(value, path)

    def read(value: Any, path: str) -> list[str | list[int]]:
        if isinstance(value, str):
            return [read_one(value, path)]
        if not isinstance(value, list):
            wanted = "a text, a list of texts, a list of ids or a list of such lists"
            raise locate(path, UsageError(f"{path} must be {wanted}, not {show(value)}."))
        if value and not isinstance(value[0], str | list):
            return [read_one(value, path)]
        if not 1 <= len(value) <= most:
            raise locate(path, UsageError(f"{path} must have 1 to {most:,} prompts, not {len(value):,}."))
        return [read_one(entry, f"{path}[{i}]") for i, entry in enumerate(value)]

    return read


def describe_prompts(most: int) -> str:
    """Returns what `read_prompts` reads, for a page of documentation."""
    ids = f"at most {MOST_IDS:,} ids, each 0 to {LARGEST_VOCABULARY - 1:,}"
    return f"a text, or a list of {ids}; or a list of 1 to {most:,} of these"


def read_content(parts: Field) -> Callable[[Any, str], str]:
    """Returns the reader of a message's content: a text, or parts, whose texts are joined with a newline."""

    def read(value: Any, path: str) -> str:
        if isinstance(value, list):
            return "\n".join(part["text"] for part in parts.read(value, path))
        text: str = TEXT.read(value, path)
        return text

    return read


def read_format(value: dict[str, Any], path: str) -> str | None:
    """Returns the form of the answer as the text of a JSON schema, or None for any text."""
    schema, has_schema = value["json_schema"], value["type"] == "json_schema"
    if (schema is not None) is not has_schema:
        fact = "is missing" if has_schema else f"does not go with the type {value['type']!r}"
        message = f"{path}.json_schema {fact}: give it together with the type 'json_schema'."
        raise locate(f"{path}.json_schema", UsageError(message))
    return None if schema is None else schema["schema"]


def read_object(fields: RequestFields, given: Mapping[str, Any], what: str, path: str = "") -> dict[str, Any]:
    """Returns the used values of an object: each field's, its default where it is not given.

    Settings of `Sampling` are there where they are given or the table has a default for them. `what` names
    the object in messages; `path` is its place with a final dot.
    """
    for name in given:
        if name not in fields:
            raise refuse_unknown(name, fields, what, path)
    found = {}
    for name, row in fields.items():
        value = given.get(name)
        if value is None:
            if row.is_required:
                refuse_unsupported(fields, given, path)  # it may be given under such a name
                place = f"{path}{name}"
                why = row.meaning[0].lower() + row.meaning[1:]
                raise locate(place, UsageError(f"{place} is missing, and {what} needs it: {why}"))
            if row.fate == "used" and (row.default is not None or not row.setting):
                found[name] = row.default
        elif row.fate == "used":
            found[name] = row.read(value, f"{path}{name}")
    refuse_unsupported(fields, given, path)
    return found


def refuse_unsupported(fields: RequestFields, given: Mapping[str, Any], path: str) -> None:
    """Raises where a refused field asks for something."""
    for name, value in given.items():
        row = fields[name]
        if row.fate == "refused" and value is not None and not row.is_neutral(value, given):
            raise locate(f"{path}{name}", UsageError(f"{path}{name} is not supported. {row.meaning}"))


def refuse_unknown(name: str, fields: RequestFields, what: str, path: str = "") -> Exception:
    """Returns the error of a field that is in no row."""
    short = name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
    hint = did_you_mean(short, fields) or " Omit it."
    return locate(f"{path}{short}", UsageError(f"{show(short)} is not a field of {what}.{hint}"))


def index_fields(*rows: RequestField) -> dict[str, RequestField]:
    """Returns fields by their names."""
    found = {row.name: row for row in rows}
    if len(found) < len(rows):
        raise ValueError("a field has two rows")
    return found
