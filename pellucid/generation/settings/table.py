"""The settings of `Sampling` as one table: the type, the limits, the meaning and an example of each.

Everything that reads or describes a setting, in Python, a recipe, a JSON request, a model's own file or an
option of the command line, reads this table. A message begins with the setting's name.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from pellucid.base.arguments import (
    INT64,
    LARGEST_VOCABULARY,
    check_bool,
    check_float,
    check_int,
    check_one_of,
    check_text,
    count_entries,
)
from pellucid.base.errors import ConfigError, UsageError, show, unknown
from pellucid.parts.samplers import Sampler

CONTEXT_RULES = ("refuse", "crop", "roll")
"""What happens where the context is full: the request is refused before it begins; the last half of the
context is read again from position 0; or the first `keep` tokens and the last half of the others are."""
DEFAULT_NEW_TOKENS = 128
"""New tokens where a request does not say how many."""
MOST_CHOICES = 64
"""Texts, or beams, of one request."""
MOST_NEW_TOKENS = 10**9
MOST_STOPS, MOST_STOP_LENGTH = 16, 100
MOST_BIASES = 1024
MOST_TOKENS = 4096
MOST_SAMPLERS = 32
SHOWN_LIMIT = 1000
"""A larger limit keeps out what is absurd, and is not worth a word of help."""


@dataclass(frozen=True)
class Setting:
    """What one setting may be, what it means, and an example."""

    option_type: ClassVar[Any] = str
    """The type of the option of the command line."""
    is_repeatable: ClassVar[bool] = False
    type_name: ClassVar[str] = "text"

    meaning: str
    example: Any
    option: str = ""
    """The option of the command line, where its name is not that of the setting."""
    is_optional: bool = False
    """Whether None is a value."""

    def read(self, name: str, value: Any) -> Any:
        """Returns the value as the record holds it; raises a UsageError where it cannot be one."""
        return None if value is None and self.is_optional else self.convert(name, value)

    def convert(self, name: str, value: Any) -> Any:
        raise NotImplementedError

    def parse(self, name: str, text: str) -> Any:
        """Returns the value that a text means, as `key=value` has it: JSON, or else the text itself.

        >>> SETTINGS["temperature"].parse("temperature", "0.5"), SETTINGS["stop"].parse("stop", "###")
        (0.5, ('###',))
        """
        try:
            return self.read(name, json.loads(text))
        except (ValueError, RecursionError):
            return self.read(name, text)

    def to_plain(self, value: Any) -> Any:
        """Returns the value as JSON and TOML write it."""
        return value

    @property
    def limits(self) -> str:
        """The least and the largest value, for a help text."""
        return ""

    @property
    def type_text(self) -> str:
        """The type with its limits, for a page of documentation."""
        return f"{self.type_name}, {self.limits}" if self.limits else self.type_name


@dataclass(frozen=True)
class NumberSetting(Setting):
    option_type: ClassVar[Any] = float
    type_name: ClassVar[str] = "number"

    least: float = -math.inf
    most: float = math.inf
    smallest: float = 0.0
    """The smallest that is not 0."""

    def convert(self, name: str, value: Any) -> float:
        found = check_float(name, value, self.least, self.most)
        if 0 < abs(found) < self.smallest:
            raise UsageError(f"{name} must be 0, or at least {self.smallest:g}; got {found:g}.")
        return found + 0.0  # and never −0

    @property
    def limits(self) -> str:
        return "" if self.most > SHOWN_LIMIT else f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class IntegerSetting(Setting):
    option_type: ClassVar[Any] = int
    type_name: ClassVar[str] = "integer"

    least: int = INT64[0]
    most: int = INT64[1]

    def convert(self, name: str, value: Any) -> int:
        return check_int(name, value, self.least, self.most)

    @property
    def limits(self) -> str:
        return "" if self.most > SHOWN_LIMIT else f"{self.least} to {self.most}"


@dataclass(frozen=True)
class FlagSetting(Setting):
    option_type: ClassVar[Any] = bool
    type_name: ClassVar[str] = "true or false"

    def convert(self, name: str, value: Any) -> bool:
        return check_bool(name, value)


@dataclass(frozen=True)
class ChoiceSetting(Setting):
    choices: tuple[str, ...] = ()

    def convert(self, name: str, value: Any) -> str:
        return check_one_of(name, value, self.choices)

    @property
    def type_text(self) -> str:
        return f"one of {', '.join(self.choices)}"


@dataclass(frozen=True)
class TextSetting(Setting):
    longest: int = 10_000

    def convert(self, name: str, value: Any) -> str:
        return _check_length(name, check_text(name, value), self.longest)


@dataclass(frozen=True)
class SchemaSetting(TextSetting):
    """A JSON schema, as a text or as the table that it means."""

    def convert(self, name: str, value: Any) -> str:
        if isinstance(value, Mapping):
            try:
                value = json.dumps(value, ensure_ascii=False)
            except (TypeError, ValueError, RecursionError):
                raise UsageError(f"{name} must be a JSON schema, not {show(value)}.") from None
        return super().convert(name, value)

    def parse(self, name: str, text: str) -> Any:
        return self.read(name, text)


@dataclass(frozen=True)
class ListSetting(Setting):
    """Several values; one alone is a list of one."""

    is_repeatable: ClassVar[bool] = True
    single: ClassVar[tuple[type, ...]] = (str,)

    longest: int = MOST_TOKENS

    def convert(self, name: str, value: Any) -> tuple[Any, ...]:
        return tuple(self.convert_entry(name, entry) for entry in self._list(name, value))

    def convert_entry(self, name: str, entry: Any) -> Any:
        raise NotImplementedError

    def _list(self, name: str, value: Any) -> list[Any]:
        if isinstance(value, self.single):
            return [value]
        if isinstance(value, set | frozenset | list | tuple | range) or _is_row(value):
            if (count := count_entries(value)) > self.longest:
                raise UsageError(f"{name} must have at most {self.longest:,} entries, not {count:,}.")
            return sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        raise UsageError(f"{name} must be a list such as {show(self.example)}, not {show(value)}.")

    def to_plain(self, value: Any) -> Any:
        return None if value is None else list(value)


@dataclass(frozen=True)
class TextListSetting(ListSetting):
    type_name: ClassVar[str] = "list of texts"

    def convert_entry(self, name: str, entry: Any) -> str:
        if not check_text(name, entry):
            raise UsageError(f"{name} must not have an empty text: omit it.")
        return _check_length(name, entry, MOST_STOP_LENGTH)


@dataclass(frozen=True)
class TokenListSetting(ListSetting):
    type_name: ClassVar[str] = "list of ids"
    single: ClassVar[tuple[type, ...]] = (Integral,)

    def convert_entry(self, name: str, entry: Any) -> int:
        return check_token(name, entry)


@dataclass(frozen=True)
class BiasSetting(Setting):
    """A number for each of some tokens. A key may be the digits of an id, as in JSON."""

    is_repeatable: ClassVar[bool] = True
    type_name: ClassVar[str] = "table of numbers"

    most: float = 1e6

    def convert(self, name: str, value: Any) -> dict[int, float]:
        if not isinstance(value, Mapping):
            raise UsageError(f"{name} must be a table such as {show(self.example)}, not {show(value)}.")
        if len(value) > MOST_BIASES:
            raise UsageError(f"{name} must have at most {MOST_BIASES:,} tokens, not {len(value):,}.")
        found: dict[int, float] = {}
        for key, bias in value.items():
            id = check_token(name, int(key) if is_id(key) else key)
            if id in found:
                raise UsageError(f"{name} has the token {id} twice: give it one number.")
            found[id] = check_float(f"{name} of token {id}", bias, -self.most, self.most) + 0.0
        return found

    def to_plain(self, value: Mapping[int, float]) -> dict[str, float]:
        return {str(id): bias for id, bias in value.items()}


@dataclass(frozen=True)
class SamplerListSetting(ListSetting):
    """Samplers without a setting of their own: a kind, a table with a `kind`, or the part itself."""

    type_name: ClassVar[str] = "list of samplers"
    single: ClassVar[tuple[type, ...]] = (str, Mapping)

    def convert_entry(self, name: str, entry: Any) -> Any:
        try:
            return Sampler.read(entry, name)
        except ConfigError as refusal:
            said = str(refusal)
            raise UsageError(said if said.startswith(name) else f"{name}: {said}") from None

    def to_plain(self, value: Iterable[Any]) -> Any:
        return json.loads(json.dumps([part.to_dict() for part in value]))  # with texts as keys, as in TOML


def check_token(name: str, value: Any) -> int:
    """Returns an id that some vocabulary could have."""
    return check_int(f"{name}: an id", value, 0, LARGEST_VOCABULARY - 1)


def is_id(value: Any) -> bool:
    """Returns whether a text is the digits of an id.

    >>> is_id("262"), is_id(" the"), is_id("٣")
    (True, False, False)
    """
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns the name and the value of a setting that is written as `key=value`.

    >>> parse_setting("temperature=0.5"), parse_setting("stop=END")
    (('temperature', 0.5), ('stop', ('END',)))
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise UsageError(f"{show(text)} sets nothing: write KEY=VALUE, for example temperature=0.5.")
    if name not in SETTINGS:
        raise UsageError(unknown("a setting", name, SETTINGS))
    return name, SETTINGS[name].parse(name, value)


def _is_row(value: Any) -> bool:
    """Returns whether a value is an array of NumPy with one axis."""
    import numpy as np

    return isinstance(value, np.ndarray) and value.ndim == 1


def _check_length(name: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise UsageError(f"{name} must have at most {longest:,} characters, not {len(text):,}.")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError(f"{name} must be text that UTF-8 can write, not {show(text)}.")
    return text


SETTINGS: dict[str, Setting] = {
    "temperature": NumberSetting(
        "0: always the most probable token (greedy); 1: the model's own probabilities; more: more varied.",
        0.8,
        least=0,
        most=1e6,
        smallest=1e-6,
    ),
    "top_k": IntegerSetting("Keep the k most probable tokens; 0: all.", 40, least=0, most=LARGEST_VOCABULARY),
    "top_p": NumberSetting(
        "Keep the smallest set of tokens with a probability of at least p; 1: all.", 0.95, least=0, most=1
    ),
    "min_p": NumberSetting(
        "Keep tokens at least p times as probable as the most probable one; 0: all.", 0.05, least=0, most=1
    ),
    "typical_p": NumberSetting(
        "Keep the tokens whose surprisal is nearest to the entropy, of a probability of at least p; 1: all.",
        0.95,
        least=0,
        most=1,
    ),
    "repetition_penalty": NumberSetting(
        "Divide the positive logits of earlier tokens by this, and multiply the negative ones; 1: neither.",
        1.1,
        least=0.01,
        most=100,
    ),
    "presence_penalty": NumberSetting(
        "Subtract this from the logit of each token that was generated before.", 0.5, least=-100, most=100
    ),
    "frequency_penalty": NumberSetting(
        "Subtract this from a token's logit for each time that it was generated before.",
        0.5,
        least=-100,
        most=100,
    ),
    "logit_bias": BiasSetting("Add a number to the logits of some tokens.", {"262": -2.5}),
    "banned_tokens": TokenListSetting("Never generate these tokens.", [0, 1], "--ban-token"),
    "forced_tokens": TokenListSetting("Begin the new text with these tokens.", [464, 262], "--force-token"),
    "regex": TextSetting("The whole output matches this regular expression.", "(yes|no)", is_optional=True),
    "json_schema": SchemaSetting(
        "The output is JSON that obeys this schema.", '{"type": "integer"}', is_optional=True, longest=100_000
    ),
    "grammar": TextSetting(
        "The output obeys this grammar: stories:LEVEL.", "stories:easy", is_optional=True, longest=100
    ),
    "samplers": SamplerListSetting(
        "Further samplers, each a kind with its settings.",
        [{"kind": "min_p", "min_p": 0.05}],
        "--sampler",
        longest=MOST_SAMPLERS,
    ),
    "min_new_tokens": IntegerSetting(
        "Generate no stop token before this number of new tokens.", 5, least=0, most=MOST_NEW_TOKENS
    ),
    "max_new_tokens": IntegerSetting(
        f"Generate this number of new tokens at most; by default {DEFAULT_NEW_TOKENS}, or what fits.",
        200,
        is_optional=True,
        least=0,
        most=MOST_NEW_TOKENS,
    ),
    "stop": TextListSetting("End the output before these texts.", ["\n\n"], longest=MOST_STOPS),
    "stop_ids": TokenListSetting(
        "End the output at these tokens, in place of the model's own.",
        [2],
        "--stop-token",
        is_optional=True,
    ),
    "seed": IntegerSetting("The same seed gives the same text.", 7, is_optional=True),
    "n": IntegerSetting("Texts for each prompt.", 4, "-n", least=1, most=MOST_CHOICES),
    "beams": IntegerSetting("Beams of a beam search; 1: without one.", 4, least=1, most=MOST_CHOICES),
    "length_penalty": NumberSetting(
        "Divide a beam's log-probability by its number of new tokens to this power.",
        0.8,
        least=-100,
        most=100,
    ),
    "early_stopping": FlagSetting("End a beam search when as many beams are finished as it has.", True),
    "context": ChoiceSetting(
        "What happens where the context is full. refuse: the request is refused before it begins; crop: the "
        "last half is kept; roll: the first tokens are kept as well.",
        "crop",
        choices=CONTEXT_RULES,
    ),
    "keep": IntegerSetting(
        "Keep this number of first tokens under context=roll.", 16, least=0, most=MOST_NEW_TOKENS
    ),
}
"""Every setting by its name, in the order of the record."""
