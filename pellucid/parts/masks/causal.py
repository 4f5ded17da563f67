"""The causal mask: a position sees itself and what came before it."""

from dataclasses import dataclass

from pellucid.parts.masks import Mask, Table


@dataclass(frozen=True)
class Causal(Mask):
    def allowed(self, queries: Table, keys: Table) -> Table:
        table: Table = keys[None, :] <= queries[:, None]
        return table
