"""The settings of `Sampling` as one table: the type, the limits, the meaning and an example of each.

Everything that reads or describes a setting, in Python, a recipe, a JSON request, a model's own file or an
option of the command line, reads this table. A message begins with the setting's name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pellucid.base.arguments import LARGEST_VOCABULARY
from pellucid.base.errors import UsageError, show, unknown
from pellucid.base.schema import Field, Length, OneOf, Range, check_utf8
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
MOST_BIASES, MOST_BIAS = 1024, 1e6
MOST_TOKENS = 4096
MOST_SAMPLERS = 32
MOST_SCHEMA = 100_000
SMALLEST_TEMPERATURE = 1e-6
"""The smallest that is not 0."""
SHOWN_LIMIT = 1000
"""A larger limit keeps out what is absurd, and is not worth a word of help."""

Probability = Annotated[float, Range(0, 1)]
Penalty = Annotated[float, Range(-100, 100)]
Count = Annotated[int, Range(0, MOST_NEW_TOKENS)]
Choices = Annotated[int, Range(1, MOST_CHOICES)]
TokenId = Annotated[int, Range(0, LARGEST_VOCABULARY - 1)]
"""An id that some vocabulary could have."""
Tokens = tuple[TokenId, ...]
Biases = Mapping[TokenId, Annotated[float, Range(-MOST_BIAS, MOST_BIAS)]]
Stops = tuple[Annotated[str, Length(MOST_STOP_LENGTH, least=1), check_utf8], ...]
Samplers = tuple[Sampler, ...]
"""Without a setting of their own: each a kind, a table with a `kind`, or the part itself."""


@dataclass(frozen=True)
class Setting(Field):
    """What one setting may be, what it means, and an example."""

    default: Any = None
    """The record has the defaults."""
    option: str = ""
    """The option of the command line, where its name is not that of the setting."""

    def read(self, value: Any, path: str = "", text: bool = False, error: Any = UsageError) -> Any:
        """Returns the value as the record holds it, in which no number is −0."""
        if self.optional and text and value == "null":
            return None
        found = super().read(value, path, text, error)
        if isinstance(found, dict):
            return {id: bias + 0.0 for id, bias in found.items()}
        return found + 0.0 if isinstance(found, float) else found

    def to_plain(self, value: Any) -> Any:
        """Returns the value as JSON and TOML write it."""
        if self.type is Samplers:
            return json.loads(json.dumps([part.to_dict() for part in value]))  # with texts as keys
        if isinstance(value, Mapping):
            return {str(id): bias for id, bias in value.items()}
        return list(value) if isinstance(value, tuple) else value

    @property
    def limits(self) -> str:
        """The least and the largest value of a number, for a help text."""
        is_shown = self.type in (int, float) and self.most is not None and self.most <= SHOWN_LIMIT
        return f"{self.least:g} to {self.most:g}" if is_shown else ""


def _check_temperature(value: float, path: str) -> float:
    if 0 < value < SMALLEST_TEMPERATURE:
        raise UsageError(f"{path} must be 0, or at least {SMALLEST_TEMPERATURE:g}; got {value:g}.")
    return value


def _read_schema(value: Any, path: str) -> str:
    """Returns a JSON schema as its text, from a text or from the table that it means."""
    if isinstance(value, Mapping):
        try:
            value = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            raise UsageError(f"{path} must be a JSON schema, not {show(value)}.") from None
    text: str = Field(path, str, most=MOST_SCHEMA, then=check_utf8).read(value)
    return text


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
    return name, SETTINGS[name].read(value, text=True)


def _make(name: str, type: Any, meaning: str, example: Any, **more: Any) -> Setting:
    return Setting(name, type, meaning=meaning, example=example, **more)


_ROWS = (
    _make(
        "temperature",
        Annotated[float, Range(0, 1e6)],
        "0: always the most probable token (greedy); 1: the model's own probabilities; more: more varied.",
        0.8,
        then=_check_temperature,
    ),
    _make(
        "top_k", Annotated[int, Range(0, LARGEST_VOCABULARY)], "Keep the k most probable tokens; 0: all.", 40
    ),
    _make(
        "top_p",
        Probability,
        "Keep the smallest set of tokens with a probability of at least p; 1: all.",
        0.95,
    ),
    _make(
        "min_p",
        Probability,
        "Keep tokens at least p times as probable as the most probable one; 0: all.",
        0.05,
    ),
    _make(
        "typical_p",
        Probability,
        "Keep the tokens whose surprisal is nearest to the entropy, of a probability of at least p; 1: all.",
        0.95,
    ),
    _make(
        "repetition_penalty",
        Annotated[float, Range(0.01, 100)],
        "Divide the positive logits of earlier tokens by this, and multiply the negative ones; 1: neither.",
        1.1,
    ),
    _make(
        "presence_penalty",
        Penalty,
        "Subtract this from the logit of each token that was generated before.",
        0.5,
    ),
    _make(
        "frequency_penalty",
        Penalty,
        "Subtract this from a token's logit for each time that it was generated before.",
        0.5,
    ),
    _make(
        "logit_bias", Biases, "Add a number to the logits of some tokens.", {"262": -2.5}, most=MOST_BIASES
    ),
    _make(
        "banned_tokens",
        Tokens,
        "Never generate these tokens.",
        [0, 1],
        most=MOST_TOKENS,
        single=True,
        option="--ban-token",
    ),
    _make(
        "forced_tokens",
        Tokens,
        "Begin the new text with these tokens.",
        [464, 262],
        most=MOST_TOKENS,
        single=True,
        option="--force-token",
    ),
    _make(
        "regex",
        Annotated[str, Length(10_000), check_utf8],
        "The whole output matches this regular expression.",
        "(yes|no)",
        optional=True,
    ),
    _make(
        "json_schema",
        Any,
        "The output is JSON that obeys this schema.",
        '{"type": "integer"}',
        then=_read_schema,
        words=f"an object, or a text of at most {MOST_SCHEMA:,} characters",
        optional=True,
    ),
    _make(
        "grammar",
        Annotated[str, Length(100), check_utf8],
        "The output obeys this grammar: stories:LEVEL.",
        "stories:easy",
        optional=True,
    ),
    _make(
        "samplers",
        Samplers,
        "Further samplers, each a kind with its settings.",
        [{"kind": "min_p", "min_p": 0.05}],
        most=MOST_SAMPLERS,
        words=f"a list of at most {MOST_SAMPLERS} samplers",
        single=True,
        option="--sampler",
    ),
    _make("min_new_tokens", Count, "Generate no stop token before this number of new tokens.", 5),
    _make(
        "max_new_tokens",
        Count,
        f"Generate this number of new tokens at most; by default {DEFAULT_NEW_TOKENS}, or what fits.",
        200,
        optional=True,
    ),
    _make("stop", Stops, "End the output before these texts.", ["\n\n"], most=MOST_STOPS, single=True),
    _make(
        "stop_ids",
        Tokens,
        "End the output at these tokens, in place of the model's own.",
        [2],
        most=MOST_TOKENS,
        single=True,
        optional=True,
        option="--stop-token",
    ),
    _make("seed", int, "The same seed gives the same text.", 7, optional=True),
    _make("n", Choices, "Texts for each prompt.", 4, option="-n"),
    _make("beams", Choices, "Beams of a beam search; 1: without one.", 4),
    _make(
        "length_penalty",
        Penalty,
        "Divide a beam's log-probability by its number of new tokens to this power.",
        0.8,
    ),
    _make("early_stopping", bool, "End a beam search when as many beams are finished as it has.", True),
    _make(
        "context",
        Annotated[str, OneOf(*CONTEXT_RULES)],
        "What happens where the context is full. refuse: the request is refused before it begins; crop: the "
        "last half is kept; roll: the first tokens are kept as well.",
        "crop",
    ),
    _make("keep", Count, "Keep this number of first tokens under context=roll.", 16),
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _ROWS}
"""Every setting by its name, in the order of the record."""
