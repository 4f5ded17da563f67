"""Copy: the letters again, `bca>` → `bca`."""

from dataclasses import dataclass

from pellucid.corpora.tasks import LettersTask


@dataclass(frozen=True)
class Copy(LettersTask):
    def reorder(self, letters: str) -> str:
        return letters
