"""One settings object for each choice: of a model, its optimizer, its schedule and its samplers.

A family of choices is a folder or a module, and nothing else lists its kinds. `parts/positions/rope.py` holds
one Part, `Rope`, and a config that says `{"kind": "rope"}` gets it; `parts/caps.py` holds `TanhCap`, whose
`kind` is "tanh". Adding a kind is adding a file or a class.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, Protocol, Self

from pellucid.base import registry, schema
from pellucid.base.errors import ConfigError, show
from pellucid.base.schema import REQUIRED, Field, fields_of, memoize

Shapes = dict[str, tuple[int, ...]]
"""Parameter shapes by name."""


class ConfigLike(Protocol):
    """A ModelConfig as its parts read it: sizes and the other parts."""

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
    """The base of every choice; a family's base class sets `family`, the name of its folder or module.

    `formula` says what is computed, `source` names the paper; `pellucid choices` prints both.
    """

    family: ClassVar[str]
    kind: ClassVar[str]
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    is_signed: ClassVar[bool] = False
    """Whether the settings that are floats may be negative."""

    def __init_subclass__(cls) -> None:
        """Gives a class in a folder family its kind: the name of its file."""
        package, _, file = cls.__module__.rpartition(".")
        if "kind" not in vars(cls) and package != __name__:
            cls.kind = file

    def check(self, config: ConfigLike) -> str | None:
        """Returns why this choice cannot be combined with the config's sizes and other choices, and what
        would work; None where it can."""
        return None

    @property
    def is_none(self) -> bool:
        """Returns whether this optional part is absent: its kind is "none"."""
        return self.kind == "none"

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
        values = {key: value for key, value in settings.items() if key != "kind"}
        if any(one.default is REQUIRED and one.name not in values for one in settings_of(part)):
            raise part._lacks_settings(values, field)
        name = f"{field} {part.kind!r}"
        made: Any = schema.read(settings_of(part), values, name, part, path=f"{name}: ", error=ConfigError)
        return made  # type: ignore[no-any-return]

    @classmethod
    def example(cls) -> Self:
        """Returns the part with its defaults, and with the example of each setting that has no default."""
        return cls(**cls.required_settings())

    @classmethod
    def required_settings(cls) -> dict[str, Any]:
        """Returns the settings without a default, each with the example in its field's metadata."""
        missing = dataclasses.MISSING
        return {
            entry.name: entry.metadata["example"]
            for entry in dataclasses.fields(cls)
            if entry.default is missing and entry.default_factory is missing
        }

    @classmethod
    def _lacks_settings(cls, values: Mapping[str, Any], field: str) -> ConfigError:
        """Returns the error of settings that are missing, with a line that would work."""
        required = cls.required_settings()
        missing = [name for name in required if name not in values]
        shown = "".join(f", {name} = {values.get(name, value)}" for name, value in required.items())
        return ConfigError(
            f"{field} {cls.kind!r} needs {' and '.join(missing)}: write for example "
            f'{field} = {{ kind = "{cls.kind}"{shown} }}.'
        )

    def __post_init__(self) -> None:
        name = f"{self.family} {self.kind!r}"
        schema.check(self, settings_of(type(self)), name, f"{name}: ")


@memoize
def settings_of(kind: type[Part]) -> tuple[Field, ...]:
    """Returns the settings of a choice; a float is not negative, unless the choice says otherwise."""
    fields: tuple[Field, ...] = fields_of(kind)
    if kind.is_signed:
        return fields
    return tuple(dataclasses.replace(field, least=0) if field.type is float else field for field in fields)


def home(family: str) -> ModuleType:
    """Returns the folder or module of a family."""
    return importlib.import_module(f"{__name__}.{family}")


def families() -> list[str]:
    """Returns the names of the families of choices."""
    return registry.kinds(__name__)


def kinds(family: str) -> list[str]:
    """Returns the kinds of one family."""
    return registry.kinds(f"{__name__}.{family}")


def find(family: str, kind: str, field: str = "") -> type[Part]:
    """Returns the settings class of one choice: find("positions", "rope") is Rope."""
    return registry.class_of(f"{__name__}.{family}", kind, field or family, Part)
