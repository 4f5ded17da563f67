"""Samplers: functions from scores to scores that change which token is drawn, and how probably.

The scores of the first sampler are the model's logits; a removed token has the score −∞. The arithmetic of a
sampler is written once, as steps of named operations, and runs on rows of logits in torch and on a tape.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias

from pellucid.base.errors import ConfigError
from pellucid.base.schema import Range
from pellucid.parts import Part

if TYPE_CHECKING:  # the options of a command are made from this module, and its help needs no arrays
    import numpy as np

TokenId = Annotated[int, Range(0)]
Bias = Annotated[float, Range(-1e300, 1e300)]
Table: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Steps = Callable[..., Any]
"""`t(name, operation, *values, **numbers)` computes one step and returns its value. The operations are those
of `reference/ops/` that `generation/samplers/row_operations.py` has too."""
LAST = 140
SMALLEST_MASS = 1e-300
"""The least mass that a sampler keeps: the first token, before which there is none, always remains."""


class TextLike(Protocol):
    """What a sampler may depend on beside the scores: the tokens before the one that is chosen."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def prompt(self) -> Table: ...
    @property
    def new(self) -> Sequence[int]: ...
    @property
    def stop_ids(self) -> Iterable[int]: ...
    @property
    def allowed(self) -> "Table | None":
        """True [V] where the constraint allows a token; None where there is no constraint."""


@dataclass(frozen=True)
class Sampler(Part):
    """The base of every sampler: its settings, what it reads, and its arithmetic."""

    family: ClassVar[str] = "samplers"
    order: ClassVar[int] = LAST
    """Its place in the chain: samplers run in ascending order, of equals as they are given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if error := self.find_error():
            raise ConfigError(f"the sampler {self.kind} {error}")

    def find_error(self) -> str | None:
        """Returns why these settings are not a sampler, and what would be; None where they are."""
        return None

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        """Returns what `apply` reads beside the scores, by name: numbers, and rows [V] with an entry for each
        token; None where the scores stay as they are at this token. By default these are the settings."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @staticmethod
    def apply(t: Steps, scores: Any, *args: Any, **inputs: Any) -> Any:
        """Returns the scores after this sampler, [… V], as steps of `t`; numbers are passed to it by name.

        It has no `self`: rows with different settings run together, and `inputs` says what each reads."""
        raise NotImplementedError

    @property
    def token_ids(self) -> Iterable[int]:
        """The token ids among the settings, which must be in the vocabulary."""
        return ()


def mark_tokens(ids: Any, vocab_size: int) -> Table:
    """Returns True [V] for these token ids, else False."""
    import numpy as np

    row = np.zeros(vocab_size, bool)
    row[np.asarray(ids, int)] = True
    return row
