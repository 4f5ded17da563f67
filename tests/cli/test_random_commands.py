"""Any command line at all: no traceback, no lost file, nothing raw on a terminal, no hang.

The lines are drawn with a fixed seed, from every command and every option, and run in a container of files
that is compared before and after. A line that fails is printed so that it can be pasted into a shell.
"""

import os
from pathlib import Path

import pytest

from tests.cli import container
from tests.cli.fork_server import Done
from tests.cli.hostile import raw_characters
from tests.cli.random_lines import Line, random_lines

EXIT_CODES = (0, 1, 2, 3, 130)
BROKEN = (
    "Traceback (most recent call last)",
    "panicked at",
    "RUST_BACKTRACE",
    "memory allocation of",
    "<frozen ",
)
"""What nobody but a programmer should read."""
EXACT = (["generate"], ["chat"], ["tokenizer", "decode"])
"""Commands that write to a pipe what a model or a tokenizer wrote."""


def complaints(line: Line, done: Done) -> list[str]:
    """Returns what is wrong with how a command line ended."""
    found = []
    if done.hung:
        found.append("it hung")
    elif done.code not in EXIT_CODES:
        found.append(f"exit code {done.code}")
    if done.orphans and not done.hung:
        found.append("it left processes behind")
    found += [f"it printed {word!r}" for word in BROKEN if word in done.text]
    exact = not line.terminal and any(line.arguments[: len(name)] == name for name in EXACT)
    if raw := raw_characters(done.err if exact else done.out + done.err, line.terminal):
        found.append(f"raw characters: {raw!r}")
    if done.code == 2 and not done.text.strip():
        found.append("no message")
    return found


def may_replace(line: Line) -> list[str]:
    """Returns the paths, from `work` on, that the line gives the order to replace or to continue."""
    words, paths = line.arguments, []
    for i, word in enumerate(words):
        if "--force" in words and word in ("--trace", "--plot"):
            paths += words[i + 1 : i + 2]
        if "--force" in words and word.startswith(("--trace=", "--plot=")):
            paths.append(word.partition("=")[2])
        if "--force" in words and word in ("-o", "--output", "--export"):
            paths += words[i + 1 : i + 2]
        if "--force" in words and word.startswith(("--output=", "--export=")):
            paths.append(word.partition("=")[2])
        if words[0] == "train" and word == "--resume":
            paths += words[i + 1 : i + 2]
    if words[0] == "calibrate" and "--save" in words:
        folders = ["ours" if word == "linked" else word for word in words]  # where that link leads
        paths += [f"{folder}/{name}generation_config.json" for folder in folders for name in ("", "model/")]
    if words[0] == "mark" and "--ask" in words:
        paths += words[1:]  # the answers are written into the sheet
    if words[0] == "get" and "--force" in words:
        paths.append("home/models")
    return [os.path.normpath(os.path.join("work", path)) for path in paths]


def lost_files(
    line: Line, before: dict[str, container.Entry], after: dict[str, container.Entry], code: int
) -> list[str]:
    orders = may_replace(line)
    gone = [
        path
        for path in container.lost(before, after)
        if not any(path == order or path.startswith((f"{order}/", _arrays_of(order))) for order in orders)
        and not path.endswith("/lock")  # it says who held a run last
    ]
    found = [f"lost {path!r}" for path in gone]
    new = [path for path in after if path not in before]
    found += [f"left {path!r}" for path in container.leftovers(new)]
    if code in (2, 3) and line.arguments[0] != "train":
        found += [f"made {path!r} and failed" for path in new]
    return found


def _arrays_of(trace: str) -> str:
    """Returns how the files of a trace begin that hold its large arrays; they are replaced with it."""
    return f"{trace.removesuffix('.json')}.trace-"


def check(seed: int, count: int) -> None:
    print(f"seed {seed}, {count:,} command lines")
    failures: list[str] = []
    work, before, untouched = renewed()
    for line in random_lines(seed, count):
        done = container.run(line.arguments, work, stdin=line.stdin, terminal=line.terminal)
        found = complaints(line, done)
        if container.touched(work.parent) != untouched:
            found += lost_files(line, before, container.snapshot(work.parent), done.code)
            container.remove(work.parent)
            work, before, untouched = renewed()
        if found:
            failures.append(f"{line}\n    {'; '.join(found)}\n    {done.text.strip()[-300:]!r}")
            print(failures[-1], flush=True)
        assert len(failures) < 40, "\n".join(failures)
    container.remove(work.parent)
    assert not failures, f"{len(failures)} of {count:,}:\n" + "\n".join(failures)


def renewed() -> tuple[Path, dict[str, container.Entry], dict[str, tuple[int, ...]]]:
    work = container.copy(container.scratch())
    return work, container.snapshot(work.parent), container.touched(work.parent)


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(40))
def test_random_command_lines(seed: int) -> None:
    check(seed, 25)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_thousand_random_command_lines(seed: int) -> None:
    check(seed, 1000)
