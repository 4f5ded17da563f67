"""Files from strangers: whatever is done to a trace, the answer is a trace or one FileError, soon."""

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.base.errors import FileError
from pellucid.explanation.trace_file import read, write
from pellucid.verification.replay import replay

STRANGE = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    1e308,
    "",
    "x",
    "1",
    [],
    [[]],
    {},
    {"x": 1},
    "->",
    "bt,->b(t",
    "probs",
]


def mutated(data: Any, draw: random.Random) -> Any:
    """A copy in which one place, found by walking down at random, was replaced, removed or doubled."""
    data = copy.deepcopy(data)
    parent, key, here = None, None, data
    while isinstance(here, dict | list) and here and (parent is None or draw.random() < 0.85):
        parent, key = here, draw.choice(list(here) if isinstance(here, dict) else range(len(here)))
        here = here[key]
    match draw.randrange(4):
        case 0 if isinstance(parent, list):
            parent.append(copy.deepcopy(here))
        case 1:
            parent.pop(key)  # type: ignore[union-attr]
        case _:
            parent[key] = draw.choice(STRANGE)  # type: ignore[index]
    return data


def is_trace(file: Path) -> bool:
    """Whether the file can be read and replayed; anything but a trace or a FileError is raised."""
    try:
        replay(read(file))
    except FileError:
        return False
    return True


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.torture)])
def test_a_mutated_trace_is_read_or_refused(count: int, tmp_path: Path) -> None:
    draw, file = random.Random(0), tmp_path / "t.json"
    write(pellucid.load("abcd").trace("A B", target="C", update="adamw", lr=0.1), file)
    whole = json.loads(file.read_text("utf-8"))
    refused = 0
    for _ in range(count):
        file.write_text(json.dumps(mutated(whole, draw)), "utf-8")
        start = time.perf_counter()
        refused += not is_trace(file)
        assert time.perf_counter() - start < 2
    assert refused > count / 4


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.torture)])
def test_a_trace_with_changed_bytes_is_read_or_refused(count: int, tmp_path: Path) -> None:
    draw, file = random.Random(1), tmp_path / "t.json"
    write(pellucid.load("abcd").trace("A B", target="C"), file)
    whole = file.read_bytes()
    refused = 0
    for _ in range(count):
        changed = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        file.write_bytes(changed[: draw.choice([None, draw.randrange(len(changed))])])
        refused += not is_trace(file)
    assert count / 2 < refused < count
