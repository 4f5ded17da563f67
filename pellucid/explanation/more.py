"""Ways to see what a text has cut: the options that show more of it, in Python and in a shell."""

from typing import NamedTuple


class More(NamedTuple):
    """The options that show what was cut: another part, deeper, all lines, more of the largest entries."""

    at: str
    depth: str
    lines: str
    top: str


IN_PYTHON = More("at=", "depth=", "lines=None", "top=")
IN_A_SHELL = More("--at ", "--depth", "--lines 0", "--top ")
