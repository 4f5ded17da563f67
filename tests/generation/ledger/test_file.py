"""A ledger file holds every number bit for bit, and whatever else is in a file is refused by its name."""

import contextlib
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, PellucidError, UsageError
from pellucid.generation.ledger.file import is_ledger, read_ledger, write_ledger
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.ledger.replay import replay_ledger
from tests.generation.small_ledgers import make_beam_ledger, make_small_ledger, make_speculative_ledger


@pytest.mark.parametrize(
    "ledger",
    [make_small_ledger(), make_small_ledger(3, 2), make_beam_ledger(), make_speculative_ledger()],
    ids=["one", "two", "beams", "speculative"],
)
def test_a_ledger_is_read_as_it_was_written(ledger: Ledger, tmp_path: Path) -> None:
    write_ledger(ledger, tmp_path / "a.json")
    assert read_ledger(tmp_path / "a.json", Ledger) == ledger
    assert is_ledger(tmp_path / "a.json")


def test_infinite_negative_and_tiny_numbers_are_kept(tmp_path: Path) -> None:
    ledger = make_small_ledger(1)
    first = ledger.completions[0]
    numbers = {"logit": -math.inf, "surprisal": math.inf, "entropy": -0.0, "probability": 5e-324}
    entry = replace(first.entries[0], **numbers)  # type: ignore[arg-type]
    write_ledger(replace(ledger, completions=(replace(first, entries=(entry,)),)), tmp_path / "a.json")
    found = read_ledger(tmp_path / "a.json").completions[0].entries[0]
    assert [repr(getattr(found, name)) for name in numbers] == [repr(value) for value in numbers.values()]


def test_a_ledger_replaces_ledgers_alone(tmp_path: Path) -> None:
    path, ledger = tmp_path / "a.json", make_small_ledger(1)
    path.write_text("[]")
    with pytest.raises(FileError):
        write_ledger(ledger, path, force=True)
    assert path.read_text() == "[]"
    write_ledger(ledger, tmp_path / "b.json")
    with pytest.raises(FileError):
        write_ledger(ledger, tmp_path / "b.json")
    write_ledger(ledger, tmp_path / "b.json", force=True)
    with pytest.raises(UsageError):
        write_ledger(ledger, tmp_path / "a.txt")


def set_at(data: Any, path: str, value: Any) -> None:
    *most, last = path.split("/")
    for key in most:
        data = data[int(key) if isinstance(data, list) else key]
    data[int(last) if isinstance(data, list) else last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("format", "pellucid-trace"),
        ("seed", 1.5),
        ("seed", 2**70),
        ("prompt", []),
        ("prompt/0", 8),
        ("prompt/0", True),
        ("completions", []),
        ("completions/0/choice", 1),
        ("completions/0/finish", "tired"),
        ("completions/0/ids/2", -1),
        ("completions/0/entries/0/u", 1.0),
        ("completions/0/entries/0/u", "nan"),
        ("completions/0/entries/0/candidates", []),
        ("completions/0/entries/0/candidates/0", [1, 2.0]),
        ("completions/0/entries/0/candidates/1/3", 2.0),
        ("completions/0/entries/0/kept", 9),
        ("completions/0/entries/0/log_normalizer", "inf"),
        ("completions/0/entries/0/removed/0/count", -1),
        ("completions/0/node", 0),
        ("sampling/temperature", None),
        ("sampling/heat", 1),
        ("texts", {"x": "a"}),
        ("texts", {"1": 1}),
        ("beams", [[0, 1, 0.0, 0.0, "kept", None, None]]),
        ("model/vocab_size", 0),
        ("shortenings", [{"choice": 4, "step": 1, "dropped": 1, "kept": 1}]),
    ],
)
def test_a_damaged_file_is_refused(path: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_ledger(make_small_ledger(), file)
    data = json.loads(file.read_text())
    set_at(data, path, value)
    file.write_text(json.dumps(data))
    with pytest.raises(FileError, match=r"a\.json"):
        read_ledger(file)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '{"format": "pellucid-ledger"}', "1e999"])
def test_other_text_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileError):
        read_ledger(tmp_path / "a.json")


def mutate(rng: random.Random, content: bytes) -> bytes:
    """Returns the file with a few bytes replaced, removed or doubled."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        piece = rng.choice(
            [b"null", b"-1", b"1e999", b"[]", b"{}", b'"x"', b"NaN", b"0", b"", data[place : place + 9]]
        )
        data[place : place + rng.choice([0, 1, 2, 8])] = piece
    return bytes(data)


def swap(rng: random.Random, data: Any) -> None:
    """Puts another value into some place of a table or list, at any depth."""
    while isinstance(data, dict | list) and data:
        key = rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data))
        if rng.random() < 0.25 or not isinstance(data[key], dict | list) or not data[key]:
            data[key] = rng.choice([None, -1, 2**80, 1.5, "inf", "", [], {}, True, [[]], 10**6, -1e300])
            return
        data = data[key]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_in_a_file_only_errors_of_ours_are_raised(seed: int, tmp_path: Path) -> None:
    rng, file = random.Random(seed), tmp_path / "a.json"
    make = rng.choice([make_small_ledger, make_beam_ledger, make_speculative_ledger])
    write_ledger(make(), file)
    content = file.read_bytes()
    for round in range(40):
        data = json.loads(content)
        swap(rng, data)
        file.write_bytes(mutate(rng, content) if round % 2 else json.dumps(data).encode())
        with contextlib.suppress(PellucidError):
            replay_ledger(read_ledger(file))
