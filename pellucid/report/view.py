"""A view: what a look inside a model found, as tables, as plots and as plain data.

    def view_attribution(prompted, *, token=None, against=None, position=-1) -> View

A function that makes a view takes the prompted model first, then its settings as keywords, all with defaults:
tokens as ids (`token`, `against`, `answer`, `wrong`, a list `tokens`), another prompt as a prompted model
(`corrupted`), a head as (layer, head), patterns of names as a list (`names`), and `progress(done, total)`
where it takes more than two seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.report.figure import Plot

Entry = str | int | float | None
"""A cell of a table; a float is shown rounded, and None as an empty cell."""


@dataclass(frozen=True)
class ViewTable:
    """Rows under named columns; a float has this many decimals."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    decimals: int = 4


@dataclass(frozen=True)
class View:
    """What one look found.

    `formula` states what is computed from which recorded names, in one line or a few; `data` holds every
    number in full, as JSON has it (lists, dictionaries, numbers, text, None).
    """

    kind: str
    """The look that made it: "lens", "attribution", …"""
    title: str
    formula: str
    tables: Sequence[ViewTable] = ()
    plots: Sequence[Plot] = ()
    notes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    found: str = ""
    """What it shows, in one sentence."""
