"""No cap: scores may grow as they like."""

from dataclasses import dataclass

from pellucid.parts.caps import Cap


@dataclass(frozen=True)
class NoCap(Cap):
    pass
