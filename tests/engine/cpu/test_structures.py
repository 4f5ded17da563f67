"""The structures of Python and of C are the same bytes."""

import ctypes

from pellucid.engine.cpu import structures
from pellucid.engine.cpu.library import load_library


def test_each_structure_has_the_size_that_c_gives_it() -> None:
    kinds = ("CMatrix", "CNorm", "CLayer", "CModel", "CCacheRow", "CCall")
    sizes = load_library().pellucid_sizes()
    assert [ctypes.sizeof(getattr(structures, kind)) for kind in kinds] == sizes[: len(kinds)]
