"""The catalogue of usual mistakes: wrong versions of a program that people (and programs) really write.

A mistake never touches the specification. It takes a program, a tape with its steps, and yields variants of
it in which a few steps are replaced. The probe measures what each convention would cost, `diagnosis.py` finds
the mistake whose numbers were recorded, and the tests plant mistakes to show that they are caught.

A worksheet names the mistake in one box: `worksheet.py` is the catalogue, `wrong_rules.py` and `slips.py`
give the wrong rules of a box.
"""

from pellucid.verification.mistakes.catalogue import CONVENTIONS, MISTAKES, SLIPS, SUBTLE
from pellucid.verification.mistakes.slips import Slip, are_neighbors, find_slips
from pellucid.verification.mistakes.variant import Mistake, Program, Variant, describe
from pellucid.verification.mistakes.worksheet import (
    SHEET_MISTAKES,
    SheetMistake,
    explain_mistake,
    resolve_mistake,
)
from pellucid.verification.mistakes.wrong_rules import find_wrong_rules

__all__ = [
    "CONVENTIONS",
    "MISTAKES",
    "SHEET_MISTAKES",
    "SLIPS",
    "SUBTLE",
    "Mistake",
    "Program",
    "SheetMistake",
    "Slip",
    "Variant",
    "are_neighbors",
    "describe",
    "explain_mistake",
    "find_slips",
    "find_wrong_rules",
    "resolve_mistake",
]
