"""A field of a request: what its value may be, its default, and whether it is used, ignored or refused.

Every error names the place of the value that is wrong, such as messages[3].content[0].type. null is a field
that is not given. `server/openai/fields.py` is the table of all fields.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pellucid.base.arguments import LARGEST_VOCABULARY, check_int, check_text
from pellucid.base.errors import did_you_mean, show, unknown
from pellucid.generation.settings.table import (
    MOST_BIASES,
    MOST_STOP_LENGTH,
    SETTINGS,
    BiasSetting,
    FlagSetting,
    SchemaSetting,
    TextListSetting,
)
from pellucid.server.http.limits import LIMITS, RequestError
from pellucid.server.http.request import request_errors

Fate = Literal["used", "ignored", "refused"]
MOST_CHARACTERS = LIMITS.body_bytes
"""Of a text: as many as a body holds."""
MOST_IDS = 2**20
"""Of one prompt."""
MOST_NAME = 80
"""Characters of an unknown field's name that are repeated in the answer, and compared with the known ones."""


class ValueType(ABC):
    """What a value may be."""

    @abstractmethod
    def read(self, path: str, value: Any) -> Any:
        """Returns the value as the server uses it; raises a RequestError where it cannot be one."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The type with its bounds, for a page of documentation."""


@dataclass(frozen=True)
class SettingValue(ValueType):
    """A setting of `Sampling`, whose table says what it may be."""

    name: str

    def read(self, path: str, value: Any) -> Any:
        setting = SETTINGS[self.name]
        if isinstance(setting, FlagSetting):
            return FlagValue().read(path, value)
        with request_errors(path):
            return setting.read(path, value)

    @property
    def text(self) -> str:
        setting = SETTINGS[self.name]
        least, most = getattr(setting, "least", None), getattr(setting, "most", None)
        if least is not None and most is not None:
            return f"{setting.type_name}, {_format_bound(least)} to {_format_bound(most)}"
        if isinstance(setting, BiasSetting):
            biases = f"{_format_bound(-setting.most)} to {_format_bound(setting.most)}"
            return f"{setting.type_text}, {biases}, for at most {MOST_BIASES:,} ids"
        if isinstance(setting, TextListSetting):
            return f"{setting.type_text}, at most {setting.longest} of {MOST_STOP_LENGTH} characters each"
        if isinstance(setting, SchemaSetting):
            return f"object, or text of at most {setting.longest:,} characters"
        if longest := getattr(setting, "longest", None):
            unit = "entries" if setting.is_repeatable else "characters"
            return f"{setting.type_text}, at most {longest:,} {unit}"
        return setting.type_text


@dataclass(frozen=True)
class FlagValue(ValueType):
    def read(self, path: str, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise RequestError(f"{path} must be true or false, not {show(value)}.", param=path)

    @property
    def text(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class IntegerValue(ValueType):
    least: int
    most: int

    def read(self, path: str, value: Any) -> int:
        with request_errors(path):
            return check_int(path, value, self.least, self.most)

    @property
    def text(self) -> str:
        return f"integer, {self.least:,} to {self.most:,}"


@dataclass(frozen=True)
class TextValue(ValueType):
    longest: int = MOST_CHARACTERS

    def read(self, path: str, value: Any) -> str:
        with request_errors(path):
            text = check_text(path, value)
        if len(text) > self.longest:
            message = f"{path} must have at most {self.longest:,} characters, not {len(text):,}."
            raise RequestError(message, param=path)
        return text

    @property
    def text(self) -> str:
        return "text" if self.longest == MOST_CHARACTERS else f"text, at most {self.longest:,} characters"


@dataclass(frozen=True)
class ChoiceValue(ValueType):
    """One of several texts."""

    choices: Mapping[str, str]
    """What each of them means."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why a text is refused that other servers know."""

    def read(self, path: str, value: Any) -> str:
        if isinstance(value, str) and value in self.refusals:
            raise RequestError(f"{path} cannot be {value!r} here. {self.refusals[value]}", param=path)
        if not isinstance(value, str) or value not in self.choices:
            raise RequestError(unknown(path, value, self.choices), param=path)
        return self.choices[value]

    @property
    def text(self) -> str:
        return f"one of {', '.join(self.choices)}"


def read_ids(path: str, value: Any, least: int = 1) -> list[int]:
    """Returns the ids of a text; whether the model's vocabulary has them is not known here."""
    if not isinstance(value, list) or not least <= len(value) <= MOST_IDS:
        shown = f"{len(value):,} of them" if isinstance(value, list) else show(value)
        raise RequestError(f"{path} must be a list of {least} to {MOST_IDS:,} ids, not {shown}.", param=path)
    for i, id in enumerate(value):
        if type(id) is not int or not 0 <= id < LARGEST_VOCABULARY:
            place = f"{path}[{i}]"
            with request_errors(place):
                check_int(place, id, 0, LARGEST_VOCABULARY - 1)
    return value


@dataclass(frozen=True)
class IdsValue(ValueType):
    """The ids of tokens."""

    least: int = 1

    def read(self, path: str, value: Any) -> list[int]:
        return read_ids(path, value, self.least)

    @property
    def text(self) -> str:
        return f"list of {self.least} to {MOST_IDS:,} ids, each 0 to {LARGEST_VOCABULARY - 1:,}"


@dataclass(frozen=True)
class PromptValue(ValueType):
    """One prompt or several, each a text or a list of ids; it becomes a list of prompts."""

    most: int

    def read(self, path: str, value: Any) -> list[str | list[int]]:
        if isinstance(value, str):
            return [TextValue().read(path, value)]
        if not isinstance(value, list):
            raise RequestError(
                f"{path} must be a text, a list of texts, a list of ids or a list of such lists, "
                f"not {show(value)}.",
                param=path,
            )
        if value and not isinstance(value[0], str | list):
            return [read_ids(path, value)]
        if not 1 <= len(value) <= self.most:
            message = f"{path} must have 1 to {self.most:,} prompts, not {len(value):,}."
            raise RequestError(message, param=path)
        return [self._read_entry(f"{path}[{i}]", entry) for i, entry in enumerate(value)]

    def _read_entry(self, path: str, entry: Any) -> str | list[int]:
        return TextValue().read(path, entry) if isinstance(entry, str) else read_ids(path, entry)

    @property
    def text(self) -> str:
        ids = f"at most {MOST_IDS:,} ids, each 0 to {LARGEST_VOCABULARY - 1:,}"
        return f"text, or list of {ids}; or list of 1 to {self.most:,} of these"


@dataclass(frozen=True)
class Field:
    """A field of a request, or of an object in one."""

    name: str
    why: str
    """One sentence: what a used field means, or why another is ignored or refused."""
    type: ValueType | None = None
    """Of a used field; the others are not read."""
    fate: Fate = "used"
    default: Any = None
    default_text: str = ""
    """The default in words, where it is not a value."""
    is_required: bool = False
    neutral: tuple[Any, ...] = ()
    """Values of a refused field that ask for nothing, and are accepted."""
    same_as: str = ""
    """The field whose value is neutral as well."""
    same_default: Any = None
    setting: str = ""
    """The setting of `Sampling` that it gives; it has no value where it is not given."""

    def is_neutral(self, value: Any, body: Mapping[str, Any]) -> bool:
        """Returns whether a value of a refused field asks for nothing."""
        accepted = list(self.neutral)
        if self.same_as:
            other = body.get(self.same_as)
            accepted.append(self.same_default if other is None else other)
        return any(type(value) is type(one) and value == one for one in accepted)  # True is not 1


Fields = Mapping[str, Field]


def read_object(fields: Fields, given: Mapping[str, Any], what: str, path: str = "") -> dict[str, Any]:
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
                message = f"{place} is missing, and {what} needs it: {row.why[0].lower()}{row.why[1:]}"
                raise RequestError(message, param=place)
            if row.fate == "used" and (row.default is not None or not row.setting):
                found[name] = row.default
        elif row.type is not None:
            found[name] = row.type.read(f"{path}{name}", value)
    refuse_unsupported(fields, given, path)
    return found


def refuse_unsupported(fields: Fields, given: Mapping[str, Any], path: str) -> None:
    """Raises where a refused field asks for something."""
    for name, value in given.items():
        row = fields[name]
        if row.fate == "refused" and value is not None and not row.is_neutral(value, given):
            raise RequestError(f"{path}{name} is not supported. {row.why}", param=f"{path}{name}")


def refuse_unknown(name: str, fields: Fields, what: str, path: str = "") -> RequestError:
    """Returns the error of a field that is in no row."""
    short = name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
    hint = did_you_mean(short, fields) or " Omit it."
    return RequestError(f"{show(short)} is not a field of {what}.{hint}", param=f"{path}{short}")


@dataclass(frozen=True)
class ObjectValue(ValueType):
    """An object with fields of its own."""

    what: str
    """What it is, for messages."""
    fields: Fields

    def read(self, path: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise RequestError(f"{path} must be an object, not {show(value)}.", param=path)
        return read_object(self.fields, value, self.what, f"{path}.")

    @property
    def text(self) -> str:
        return "object"


@dataclass(frozen=True)
class ListValue(ValueType):
    """Several values of one type."""

    of: ValueType
    least: int
    most: int

    def read(self, path: str, value: Any) -> Any:
        if not isinstance(value, list):
            raise RequestError(f"{path} must be a list, not {show(value)}.", param=path)
        if not self.least <= len(value) <= self.most:
            message = f"{path} must have {self.least} to {self.most:,} entries, not {len(value):,}."
            raise RequestError(message, param=path)
        return [self.of.read(f"{path}[{i}]", entry) for i, entry in enumerate(value)]

    @property
    def text(self) -> str:
        return f"list of {self.least} to {self.most:,}"


@dataclass(frozen=True)
class ContentValue(ValueType):
    """The content of a message: a text, or parts, whose texts are joined with a newline."""

    parts: ListValue

    def read(self, path: str, value: Any) -> str:
        if isinstance(value, list):
            return "\n".join(part["text"] for part in self.parts.read(path, value))
        return TextValue().read(path, value)

    @property
    def text(self) -> str:
        return f"text, or {self.parts.text} parts"


@dataclass(frozen=True)
class FormatValue(ObjectValue):
    """The form of the answer; it becomes the text of a JSON schema, or None for any text."""

    def read(self, path: str, value: Any) -> str | None:
        found = super().read(path, value)
        schema, has_schema = found["json_schema"], found["type"] == "json_schema"
        if (schema is not None) is not has_schema:
            fact = "is missing" if has_schema else f"does not go with the type {found['type']!r}"
            message = f"{path}.json_schema {fact}: give it together with the type 'json_schema'."
            raise RequestError(message, param=f"{path}.json_schema")
        return None if schema is None else schema["schema"]


def index_fields(*rows: Field) -> dict[str, Field]:
    """Returns fields by their names."""
    found = {row.name: row for row in rows}
    if len(found) < len(rows):
        raise ValueError("a field has two rows")
    return found


def _format_bound(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"
