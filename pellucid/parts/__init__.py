"""One settings object per choice. The folder is the registry: a kind is the name of its file.

`parts/positions/rope.py` holds one Part, `Rope`, and a config that says `{"kind": "rope"}` gets it.
Adding a kind is adding a file; nothing else lists them.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

from pellucid import registry
from pellucid.arguments import INT64
from pellucid.errors import ConfigError, did_you_mean, show

Shapes = dict[str, tuple[int, ...]]


class Model(Protocol):
    """The config as its parts see it: the sizes, and the other choices that they have to go with."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def n_head(self) -> int: ...
    @property
    def n_kv_head(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def d_head(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def positions(self) -> Any: ...
    @property
    def mask(self) -> Any: ...
    @property
    def score_cap(self) -> Any: ...
    @property
    def dropout(self) -> Any: ...
    @property
    def attention(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Part:
    """The base of every choice; a family's base class sets `family`, the name of its folder.

    `formula` and `source` are for people: what is computed, and who says so.
    """

    family: ClassVar[str]
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def check(self, model: Model) -> str | None:
        """Why this choice cannot go with a model's sizes and other choices, and what would work; None where
        it can."""
        return None

    @property
    def kind(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | dataclasses.asdict(self)

    @classmethod
    def read(cls, given: Any, field: str = "") -> Self:
        """Returns the part that is meant by `"rope"`, by `{"kind": "rope", "base": 500000}` or by a part.

        `field` is the key that an error names, by default the family.
        """
        if isinstance(given, cls):
            return given
        field = field or cls.family
        settings = {"kind": given} if isinstance(given, str) else given
        if not isinstance(settings, Mapping) or not isinstance(settings.get("kind"), str):
            raise ConfigError(
                f'{field} must be a kind such as "{kinds(cls.family)[0]}", or a table with a '
                f"`kind`; got {show(given)}."
            )
        part = find(cls.family, settings["kind"], field)
        return part(**part._convert({k: v for k, v in settings.items() if k != "kind"}, field))  # type: ignore[return-value]

    def __post_init__(self) -> None:
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        for name, value in self._convert(values, self.family).items():
            object.__setattr__(self, name, value)

    @classmethod
    def _convert(cls, settings: Mapping[str, Any], field: str) -> dict[str, Any]:
        """Returns the settings in the types of their fields; one of another type or range is refused."""
        kind, fields = cls.__module__.rpartition(".")[2], {e.name: e for e in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in settings.items():
            if key not in fields:
                has = f"has {', '.join(fields)}" if fields else "has no settings"
                raise ConfigError(
                    f"{field} {kind!r} has no setting {key!r}; it {has}." + did_you_mean(str(key), fields)
                )
            if type(value) is int and fields[key].type is float:
                value = float(value) if abs(value) < 2**1000 else math.inf
            if type(value) is not fields[key].type:
                wanted = fields[key].type.__name__  # type: ignore[union-attr]
                raise ConfigError(f"{field} {kind!r}: {key} must be {wanted}, not {show(value)}.")
            if isinstance(value, float) and not 0 <= value < math.inf:
                raise ConfigError(f"{field} {kind!r}: {key}={value} must be finite and not below 0.")
            if isinstance(value, int) and not INT64[0] <= value <= INT64[1]:
                raise ConfigError(f"{field} {kind!r}: {key} must be a whole number of at most 64 bits.")
            values[key] = value
        return values


def kinds(family: str) -> list[str]:
    """The kinds of one family."""
    return registry.kinds(f"{__name__}.{family}")


def families() -> list[str]:
    return registry.kinds(__name__)


def find(family: str, kind: str, field: str = "") -> type[Part]:
    """The settings class of one choice: find("positions", "rope") is Rope."""
    return registry.class_of(f"{__name__}.{family}", kind, field or family, Part)
