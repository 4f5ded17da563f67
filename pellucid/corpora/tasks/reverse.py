"""Reverse: the letters from the last to the first, `bca>` → `acb`."""

from dataclasses import dataclass

from pellucid.corpora.tasks import LettersTask


@dataclass(frozen=True)
class Reverse(LettersTask):
    def reorder(self, letters: str) -> str:
        return letters[::-1]
