"""Sort: the letters in the order of the alphabet, `bcab>` → `abbc`."""

from dataclasses import dataclass

from pellucid.corpora.tasks import LettersTask


@dataclass(frozen=True)
class Sort(LettersTask):
    def reorder(self, letters: str) -> str:
        return "".join(sorted(letters))
