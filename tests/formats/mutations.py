"""Small damage to files, as chance or malice would do it, the same for the same seed."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import PellucidError
from pellucid.formats.resolve import open_model

NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "\0", "\ud800", "../x", "default", "llama", "x" * 2000, [], [0], [[]], [-1, 4], {},
    {"a": 1}, {"type": "yarn"}, [["a"]], ["LlamaForCausalLM"],
)  # fmt: skip


def damaged_json(data: bytes, rng: np.random.Generator) -> bytes:
    """JSON with one to three values replaced, keys dropped or added; or damaged as bytes."""
    if rng.random() < 0.3:
        return damaged_bytes(data, rng)
    tree = json.loads(data)
    for _ in range(rng.integers(1, 4)):
        places = list(_places(tree))
        if not places:
            return b"[]"
        holder, key = places[rng.integers(len(places))]
        action = rng.random()
        if action < 0.15:
            del holder[key]
        elif action < 0.25 and isinstance(holder, dict):
            holder[str(_nasty(rng))[:600]] = copy.deepcopy(holder[key])
        else:
            holder[key] = _nasty(rng)
    text = json.dumps(tree)
    if rng.random() < 0.05:
        text = text.replace("{", '{"vocab_size": 3, "vocab_size": 4, ', 1)
    return text.encode("utf-8", "surrogatepass")


def _nasty(rng: np.random.Generator) -> Any:
    return copy.deepcopy(NASTY[rng.integers(len(NASTY))])


def _places(tree: Any) -> Any:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def damaged_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, cut off, cut out, or put in."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(changed) + 1))
        action = rng.integers(4)
        if action == 0 and at < len(changed):
            changed[at] ^= 1 << int(rng.integers(8))
        elif action == 1:
            del changed[at : at + int(rng.integers(1, 40))]
        elif action == 2:
            changed[at:at] = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def damaged_safetensors(data: bytes, rng: np.random.Generator) -> bytes:
    """A safetensors file with its header damaged as JSON, or the whole of it as bytes."""
    if rng.random() < 0.3:
        return damaged_bytes(data, rng)
    length = int.from_bytes(data[:8], "little")
    header = damaged_json(data[8 : 8 + length].rstrip(), rng)
    claimed = len(header) if rng.random() < 0.9 else int(rng.integers(0, 2**40))
    return claimed.to_bytes(8, "little") + header + data[8 + length :]


Damage = Callable[[bytes, np.random.Generator], bytes]


def outcome(folder: Path) -> str:
    """What reading the folder and all of its weights comes to."""
    try:
        for weight in open_model(folder).weights.values():
            np.asarray(weight).sum()
    except PellucidError as error:
        return type(error).__name__
    return "read"


def attack(
    folders: Sequence[Path], damages: Mapping[str, Damage], count: int, seed: int
) -> Counter[tuple[str, str]]:
    """Damages one file of one folder, `count` times; returns how often it came to what, by file."""
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        folder = folders[rng.integers(len(folders))]
        names = [name for name in damages if (folder / name).exists()]
        name = names[rng.integers(len(names))]
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(damages[name](whole, rng))
        with np.errstate(all="ignore"):
            seen[name, outcome(folder)] += 1
        (folder / name).write_bytes(whole)
    return seen
