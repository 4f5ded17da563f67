"""No output projection: the heads, side by side, are the output."""

from dataclasses import dataclass

from pellucid.parts.outputs import Output


@dataclass(frozen=True)
class NoOutput(Output):
    pass
