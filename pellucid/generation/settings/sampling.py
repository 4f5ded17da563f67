"""Settings by which a text is chosen from a model's logits: one frozen record for every caller.

The fields that carry the name of a file in `parts/samplers/` are the settings of that sampler; a sampler
without a field of its own is given in `samplers`. `generation/settings/table.py` says what each may be.

A setting has one name. The names that other libraries have for one are refused with the name here, and what
to write.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pellucid.base.arguments import check_int, check_list, check_one_of, check_text, check_type
from pellucid.base.errors import TokenError, UsageError
from pellucid.base.schema import read
from pellucid.generation.settings.conflicts import drop_conflicts, find_conflicts
from pellucid.generation.settings.foreign_keys import read_generation, suggest_key
from pellucid.generation.settings.table import CONTEXT_RULES as CONTEXT_RULES
from pellucid.generation.settings.table import DEFAULT_NEW_TOKENS as DEFAULT_NEW_TOKENS
from pellucid.generation.settings.table import SETTINGS


@dataclass(frozen=True)
class Sampling:
    """The settings of one request. The defaults are greedy decoding.

    >>> Sampling(temperature=0.8, stop="END")
    Sampling(temperature=0.8, stop=('END',))
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned_tokens: tuple[int, ...] = ()
    forced_tokens: tuple[int, ...] = ()
    """The first new tokens."""
    regex: str | None = None
    json_schema: str | None = None
    grammar: str | None = None
    samplers: tuple[Any, ...] = ()
    min_new_tokens: int = 0
    max_new_tokens: int | None = None
    """None: as many as the context holds, at most `DEFAULT_NEW_TOKENS`."""
    stop: tuple[str, ...] = ()
    """Texts that end the output, which does not contain them."""
    stop_ids: tuple[int, ...] | None = None
    """Tokens that end the output; None: the model's own."""
    seed: int | None = None
    n: int = 1
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    context: str = "refuse"
    keep: int = 0

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            object.__setattr__(self, name, setting.read(getattr(self, name)))
        for conflict in find_conflicts(self):
            raise UsageError(conflict.message)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.given)
        return f"{type(self).__name__}({given})"

    @property
    def given(self) -> list[str]:
        """The names of the settings that differ from the default."""
        return [name for name, default in DEFAULTS.items() if getattr(self, name) != default]

    @classmethod
    def read(cls, table: Any, path: str = "", *, error: type[Exception] = UsageError) -> Self:
        """Returns the settings of a table, which stands under the key `path`; an unknown key or an impossible
        value is refused.

        >>> Sampling.read({"temperature": 1, "logit_bias": {"262": -2}})
        Sampling(temperature=1.0, logit_bias={262: -2.0})
        """
        if isinstance(table, cls):
            return table
        found = read_settings(table, check_text("path", path), error)
        try:
            return cls(**found)
        except UsageError as refusal:
            raise error(f"{path}.{refusal}" if path else str(refusal)) from None

    @classmethod
    def from_generation(cls, settings: Mapping[str, Any]) -> Self:
        """Returns a model's own settings, from its generation settings under Hugging Face's keys.

        >>> Sampling.from_generation({"do_sample": True, "temperature": 0.6, "eos_token_id": 2})
        Sampling(temperature=0.6, stop_ids=(2,))
        """
        check_type("settings", settings, Mapping, "a table of generation settings")
        return cls(**drop_conflicts(read_generation(settings), {}, DEFAULTS))

    def merge(self, other: "Sampling | Mapping[str, Any]") -> Self:
        """Returns these settings with those of `other` in their place: its keys, or what differs from the
        default.

        >>> Sampling(temperature=0.8, seed=7).merge({"temperature": 0})
        Sampling(seed=7)
        """
        if isinstance(other, Sampling):
            return dataclasses.replace(self, **{name: getattr(other, name) for name in other.given})
        return dataclasses.replace(self, **read_settings(other))

    def to_dict(self, always: Collection[str] = ()) -> dict[str, Any]:
        """Returns what differs from the default, and the settings named in `always`, as JSON and TOML write
        it. `Sampling.read` reads it."""
        listed = check_list("always", always, "a list of settings")
        wanted = {*(check_one_of("always", name, SETTINGS) for name in listed), *self.given}
        return {
            name: setting.to_plain(getattr(self, name))
            for name, setting in SETTINGS.items()
            if name in wanted
        }

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises where a token is beyond a model's vocabulary, or where none may be generated."""
        check_int("vocab_size", vocab_size, least=1)
        for name in ("logit_bias", "banned_tokens", "forced_tokens", "stop_ids"):
            for id in getattr(self, name) or ():
                if id >= vocab_size:
                    raise TokenError(f"{name}: ids go from 0 to {vocab_size - 1:,}; got {id:,}.")
        if len(set(self.banned_tokens)) == vocab_size:
            raise UsageError("banned_tokens has every token of the vocabulary: omit at least one.")


DEFAULTS: dict[str, Any] = {
    entry.name: {} if entry.default is dataclasses.MISSING else entry.default
    for entry in dataclasses.fields(Sampling)
}
"""The default of each setting."""


def read_settings(table: Any, path: str = "", error: type[Exception] = UsageError) -> dict[str, Any]:
    """Returns the settings of a table by their names here, as the record holds them."""
    what = path or "the sampling settings"
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if key not in SETTINGS and (hint := suggest_key(key, value)):
            raise error(hint)
    return read(SETTINGS.values(), table, what, path=path, error=error)
