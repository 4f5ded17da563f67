"""The ledger of a generated text: printed as a table, saved as a file, shown as a page, replayed."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from pellucid.base.arguments import check_bool, check_int, check_path
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.explanation.more import IN_PYTHON, More
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.file import check_ledger_output, read_ledger, to_data, write_ledger
from pellucid.generation.ledger.page import check_page_output, make_page, write_page
from pellucid.generation.ledger.replay import LedgerReplay, replay_ledger
from pellucid.generation.ledger.text import format_ledger, format_token


@dataclass(frozen=True, repr=False)
class Ledger(LedgerRecord):
    """How every token of a text was chosen. Print it to read it.

    `save` writes a file that `pellucid replay` recomputes and `pellucid explain` follows into the model.
    """

    @classmethod
    def read(cls, path: str | Path) -> "Ledger":
        """Returns the ledger of a file."""
        return read_ledger(Path(check_path("path", path)), cls)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Writes the ledger as a .json file, or as a page where the path ends in .html; `force` replaces one
        of the same kind."""
        file, force = Path(check_path("path", path)), check_bool("force", force)
        (write_page if file.suffix == ".html" else write_ledger)(self, file, force)

    @staticmethod
    def check_output(path: str | Path, force: bool = False) -> None:
        """Raises unless a ledger, or its page, may be saved there; call it before the work."""
        file = Path(check_path("path", path))
        (check_page_output if file.suffix == ".html" else check_ledger_output)(file, force)

    def why(self, token: int, choice: int = 0) -> str:
        """Returns how one token was chosen, as text. Tokens are numbered from 1."""
        return "\n".join(format_token(self, check_int("token", token), check_int("choice", choice)))

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the ledger as lines of text, and how to follow one token."""
        yield from str(self).splitlines()
        yield "one token, and on into the model: --token N (token=N in Python)"

    def to_data(self) -> dict[str, Any]:
        """Returns the ledger as its file holds it."""
        return to_data(self)  # type: ignore[no-any-return]

    def replay(self) -> LedgerReplay:
        """Recomputes every draw, from the seed, and what else follows from the recorded numbers."""
        return replay_ledger(self)

    def _repr_html_(self) -> str:
        style = "width:100%;height:40em;border:0"
        return f'<iframe style="{style}" sandbox="allow-scripts" srcdoc="{escape(make_page(self))}"></iframe>'

    def __str__(self) -> str:
        return "\n".join(format_ledger(self))

    def __repr__(self) -> str:
        count = pluralize(sum(len(completion.ids) for completion in self.completions), "token")
        return escape_controls(
            f"<Ledger of {count}: {self.model.name}, {self.model.dtype} on {self.model.device}>", keep=""
        )
