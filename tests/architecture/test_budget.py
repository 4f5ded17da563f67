"""How large each room is: files and lines, each with a limit that may only fall, or rise with a reason."""

import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pellucid
from tests.architecture.test_layers import LAYERS

ROOT = Path(pellucid.__file__).parents[1]
SLACK = 150
"""Lines by which a room may be smaller than its limit: what falls further takes its limit along."""
ENTRIES = 23


class Size(NamedTuple):
    files: int
    lines: int


ROOMS: dict[str, Size] = {
    "__init__.py": Size(1, 150),
    "py.typed": Size(1, 0),
    "base": Size(17, 2910),
    "parts": Size(52, 2570),
    "config": Size(17, 750),
    "reference": Size(34, 3850),
    "ops.py": Size(1, 70),
    "engine": Size(63, 8500),
    "report": Size(27, 3390),
    "text": Size(20, 2990),
    "formats": Size(39, 5700),
    "data": Size(44, 5680),
    "model.py": Size(1, 560),
    "explanation": Size(29, 6120),
    "generation": Size(57, 10550),
    "evaluation": Size(41, 8270),
    "interpretability": Size(20, 4890),
    "training": Size(52, 7410),
    "verification": Size(83, 15730),
    "learning": Size(50, 8510),
    "verbs.py": Size(1, 200),
    "server": Size(91, 11870),
    "cli": Size(39, 6200),
}
TESTS = Size(748, 93390)


def list_files(folder: str) -> list[str]:
    """Returns the files of a folder that git has, or would have."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in dict.fromkeys(done.stdout.splitlines()) if (ROOT / name).is_file()]


def measure(folder: str) -> dict[str, Size]:
    """Returns the size of each entry of a folder."""
    files, lines = Counter[str](), Counter[str]()
    for name in list_files(folder):
        entry = name.split("/")[1]
        files[entry] += 1
        lines[entry] += (ROOT / name).read_bytes().count(b"\n")
    return {entry: Size(files[entry], lines[entry]) for entry in files}


def test_no_room_has_more_files_or_lines_than_its_limit() -> None:
    for room, size in measure("pellucid").items():
        limit = ROOMS[room]
        assert size.files <= limit.files and size.lines <= limit.lines, f"{room}: {size}, at most {limit}"
        assert size.lines >= limit.lines - SLACK, f"{room}: {size}, so lower its limit, {limit}"


def test_the_package_has_few_entries_in_six_layers() -> None:
    entries = measure("pellucid")
    assert len(entries) <= ENTRIES and len(LAYERS) == 6
    assert {entry.removesuffix(".py") for entry in entries} == {
        *(room for rooms in LAYERS for room in rooms),
        *("__init__", "py.typed"),
    }


def test_the_tests_have_no_more_lines_than_their_limit() -> None:
    sizes = measure("tests").values()
    whole = Size(sum(size.files for size in sizes), sum(size.lines for size in sizes))
    assert whole.files <= TESTS.files and whole.lines <= TESTS.lines, f"{whole}, at most {TESTS}"
