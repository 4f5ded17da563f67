"""No dropout: every number is kept."""

from dataclasses import dataclass

from pellucid.parts.dropouts import Dropout


@dataclass(frozen=True)
class NoDropout(Dropout):
    pass
