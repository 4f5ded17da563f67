"""How a reader asks for more of a text that was cut: the options' names in Python and in a shell."""

from typing import NamedTuple


class More(NamedTuple):
    """What to write to see another part, to see deeper, everything, and more of the largest entries."""

    at: str
    depth: str
    lines: str
    top: str


IN_PYTHON = More("at=", "depth=", "lines=None", "top=")
IN_A_SHELL = More("--at ", "--depth", "--lines 0", "--top ")
