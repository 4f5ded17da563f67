"""The catalogue of usual mistakes: wrong versions of a program that people (and programs) really write.

A mistake never touches the specification. It takes a program, a tape with its steps, and yields variants of
it in which a few steps are replaced. The probe measures what each convention would cost, `diagnosis.py` finds
the mistake whose numbers were recorded, and the tests plant mistakes to show that they are caught.
"""

from pellucid.judge.mistakes.catalogue import CONVENTIONS, MISTAKES, SLIPS
from pellucid.judge.mistakes.variant import Mistake, Program, Variant, describe

__all__ = ["CONVENTIONS", "MISTAKES", "SLIPS", "Mistake", "Program", "Variant", "describe"]
