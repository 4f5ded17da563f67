"""A checkpoint: all that a run is at one moment, in a folder that is complete or not there.

    step-0000500/
        model/                      a model folder like any other: the running mean of the weights where there
                                    is one, else the weights themselves, in the type they are trained in
        rank-0/                     what one rank has of the rest; of several, each has such a folder
            raw.safetensors         the weights as the optimizer left them, where the model holds their mean
            optimizer.safetensors   moments and counters under the parameters' names
            rng.safetensors         the dice
        index.json                  of each tensor the shape, and with which row the piece of a rank begins
        state.json                  the numbers that are no tensors, the recipe, what the bits depend on
        manifest.json               size and SHA-256 of each of these, and of itself

It is written under another name, each file brought to the disk before the next, the manifest last and by the
first rank alone; then renamed. So a folder called step-… is complete at whatever moment a process, or the
power, was cut off, and what changes in it later no longer fits its manifest. Pieces are put together when
they are read, so that any number of ranks can go on from them.
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.errors import AskedWrongly, FileError
from pellucid.files import need, read_format, settle, strict, whole_file
from pellucid.interop import model_folder
from pellucid.interop import pretrained as interop
from pellucid.interop.folder import LARGEST_JSON, read_bytes, read_table, shown
from pellucid.interop.safetensors_file import (
    KNOWN,
    LARGEST_INDEX,
    Stored,
    read_file,
    read_tensors,
    write_file,
)
from pellucid.text.tokenizer import Tokenizer
from pellucid.training.pieces import Piece, in_pieces, piece, whole
from pellucid.training.ranks import ALONE, Ranks

FORMAT, VERSION = "pellucid-checkpoint", 2
MANIFEST, STATE, INDEX, MODEL = "manifest.json", "state.json", "index.json", "model"
PARTIAL = ".tmp-"
TENSORS, DICE = ("raw", "optimizer"), "rng"
"""The parts of a checkpoint that ranks may have in pieces, and what each has for itself."""
PLAIN = ("plain", "loader", "meters", "recipe", "environment")
"""The tables of state.json."""
FLOATS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
TYPES = FLOATS | {
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_NAME = re.compile(r"step-(\d{7,15})")
_COUNT = itertools.count()


class Snapshot(NamedTuple):
    """Everything that a run is at one moment. Tensors are on any device, whole or in pieces; tables hold what
    JSON can hold. There are no dice where they were those of other ranks."""

    step: int
    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
    tokenizer: Tokenizer | None
    optimizer: Mapping[str, torch.Tensor]
    ema: Mapping[str, torch.Tensor]
    rng: Mapping[str, torch.Tensor]
    loader: dict[str, int]
    plain: dict[str, Any]
    meters: dict[str, Any]
    name: str = ""


def name_of(step: int) -> str:
    return f"step-{step:07d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's name, None where it is the name of something else."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found and name_of(int(found[1])) == name else None


# ---- writing


def write(
    folder: Path,
    snapshot: Snapshot,
    recipe: Mapping[str, Any],
    environment: Mapping[str, Any],
    ranks: Ranks = ALONE,
) -> Path:
    """Save a snapshot as `folder`/step-…; what is complete in the folder stays so, whatever happens.

    All ranks take part, each with what it has; where one of them fails, none has saved.
    """
    raw = snapshot.weights if snapshot.ema else {}
    pieces = {
        part: _own(tensors, ranks) for part, tensors in zip(TENSORS, (raw, snapshot.optimizer), strict=True)
    }
    mine = {part: {name: one.rows for name, one in found.items()} for part, found in pieces.items()}
    files = {part: _storable(part, tensors) for part, tensors in [*mine.items(), (DICE, snapshot.rng)]}
    pretrained = _pretrained(snapshot, ranks)
    state = _state_text(snapshot, recipe, environment)
    made = folder / name_of(snapshot.step)

    def own_part() -> dict[str, Any]:
        """This rank's files, and what the first one has to know of them."""
        here = new / f"rank-{ranks.rank}"
        here.mkdir()
        for part, tensors in files.items():
            if tensors:
                write_file(here / f"{part}.safetensors", tensors)
        if ranks.first:
            model_folder.write(new / MODEL, pretrained)
        settle(new)
        folders = [here.name, *[MODEL] * ranks.first]
        entries = {f"{at}/{name}": _entry(new / at / name) for at in folders for name in _listing(new / at)}
        where = {part: {name: [p.first, p.shape] for name, p in own.items()} for part, own in pieces.items()}
        return {"entries": entries, "pieces": where}

    with _telling(folder, snapshot):
        new = folder / ranks.first_alone(lambda: _temporary(folder, made.name))
        try:
            parts = ranks.together(own_part)
            ranks.first_alone(lambda: _complete(new, made, snapshot.step, state, parts))
        finally:
            if ranks.first:
                shutil.rmtree(new, ignore_errors=True)
    return made


def _temporary(folder: Path, name: str) -> str:
    """A new folder for the files, until they are complete."""
    new = folder / f"{PARTIAL}{name}-{os.getpid()}-{next(_COUNT)}"
    new.mkdir()
    return new.name


def _complete(new: Path, made: Path, step: int, state: bytes, parts: Sequence[dict[str, Any]]) -> None:
    """Index, state and manifest; then the folder gets its name."""
    with whole_file(new / INDEX) as file:
        file.write(_index_text([part["pieces"] for part in parts]))
    with whole_file(new / STATE) as file:
        file.write(state)
    entries = {name: _entry(new / name) for name in (INDEX, STATE)}
    for part in parts:
        entries |= part["entries"]
    with whole_file(new / MANIFEST) as file:
        file.write(_manifest_text(step, dict(sorted(entries.items()))))
    old = new.with_name(f"{new.name}-old")
    try:
        if made.exists():
            made.rename(old)
        new.rename(made)
        settle(made.parent)
    finally:
        if old.exists() and not made.exists():
            old.rename(made)
        shutil.rmtree(old, ignore_errors=True)


def _own(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, Piece]:
    """The pieces that this rank saves: its rows, and as the first one whatever is whole."""
    found = {name: piece(tensor.detach()) for name, tensor in tensors.items()}
    return {
        name: one
        for name, one in found.items()
        if (len(one.rows) if in_pieces(tensors[name]) else ranks.first)
    }


def _index_text(ranks: Sequence[dict[str, Any]]) -> bytes:
    """Of each tensor the shape, and [rank, first row] of each piece."""
    table: dict[str, Any] = {"ranks": len(ranks)} | {part: {} for part in TENSORS}
    for rank, parts in enumerate(ranks):
        for part, pieces in parts.items():
            for name, (first, shape) in pieces.items():
                entry = table[part].setdefault(name, {"shape": shape, "pieces": []})
                entry["pieces"].append([rank, first])
    return (json.dumps(table) + "\n").encode()


def bytes_of(snapshot: Snapshot) -> int:
    """How many bytes its tensors take: the whole checkpoint, but for a few kilobytes."""
    tables = (snapshot.weights, snapshot.optimizer, snapshot.ema, snapshot.rng)
    return sum(
        math.prod(tensor.shape) * tensor.element_size() for tensors in tables for tensor in tensors.values()
    )


@contextlib.contextmanager
def _telling(folder: Path, snapshot: Snapshot) -> Iterator[None]:
    """One error for whatever the disk refuses: which file, how many bytes, and that nothing was lost."""
    takes = bytes_of(snapshot)
    about = f"The checkpoint of step {snapshot.step} takes {takes:,} bytes, and {{free:,}} are free there. "
    about += "Earlier checkpoints are as they were."
    try:
        free = shutil.disk_usage(folder).free
        if free < takes:
            raise FileError(f"cannot write {folder}: there is no room for it.")
        yield
    except (OSError, FileError) as error:
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"cannot write {error.filename or folder}: {error.strerror or error}."
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(folder).free
            reason = f"{reason} {about.format(free=free)}"
        raise FileError(reason) from None


def _pretrained(snapshot: Snapshot, ranks: Ranks) -> interop.Pretrained:
    """The model in the form that model folders are written from, each weight fetched when its turn comes."""
    weights = snapshot.ema or snapshot.weights
    wanted = snapshot.config.parameters()
    for tensors in (snapshot.weights, weights):
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for name in dict.fromkeys([*wanted, *found]):
            if wanted.get(name) != found.get(name):
                raise AskedWrongly(
                    f"the weight {name} has the shape {found.get(name)} in the run, and its config says "
                    f"{wanted.get(name)}."
                )
    stored = _storable("weights", _gathered(weights, ranks))
    return interop.Pretrained(
        name=snapshot.name,
        config=snapshot.config,
        weights=interop.Weights({name: interop.Tensor(s.shape, s.bits) for name, s in stored.items()}),
        tokenizer=snapshot.tokenizer,
        source=interop.Source(
            Path(), model_folder.MODEL_TYPE, "", {name: s.type for name, s in stored.items()}, 0
        ),
    )


def _gathered(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, torch.Tensor]:
    """All of them whole on the first rank; one after the other, so that no GPU holds more than one."""
    found = {}
    for name, tensor in tensors.items():
        one = whole(tensor.detach())
        if ranks.first:
            found[name] = one.cpu() if in_pieces(tensor) else one
    return found


def _storable(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Stored]:
    for name, tensor in tensors.items():
        if tensor.dtype not in (FLOATS if part == "weights" else TYPES):
            raise AskedWrongly(f"{part}: {name} is {tensor.dtype}, which a checkpoint cannot hold.")
    return {
        name: Stored(TYPES[tensor.dtype], tuple(tensor.shape), partial(_bits, tensor))
        for name, tensor in tensors.items()
    }


def _bits(tensor: torch.Tensor) -> interop.Array:
    """A tensor's numbers as a file has them: bfloat16 as its bits."""
    here = tensor.detach().cpu().contiguous()
    return np.asarray((here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy())


def _state_text(snapshot: Snapshot, recipe: Mapping[str, Any], environment: Mapping[str, Any]) -> bytes:
    tables = (snapshot.plain, snapshot.loader, snapshot.meters, dict(recipe), dict(environment))
    table = {"step": snapshot.step, **dict(zip(PLAIN, tables, strict=True))}
    return (json.dumps(table, indent=1) + "\n").encode()


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "bytes": os.fstat(file.fileno()).st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _manifest_text(step: int, entries: Mapping[str, Any]) -> bytes:
    """The one way to write this manifest: whoever reads another one knows that it was changed."""
    table = {"format": FORMAT, "version": VERSION, "step": step, "files": entries}
    table["sha256"] = hashlib.sha256(json.dumps(table).encode()).hexdigest()
    return (json.dumps(table, indent=1) + "\n").encode()


def _listing(folder: Path) -> set[str]:
    """The files of a checkpoint; hidden ones are somebody else's, and nothing reads them."""
    found = set()
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in links]
        ours = [name for name in (*files, *links) if not name.startswith(".")]
        found |= {(Path(place) / name).relative_to(folder).as_posix() for name in ours}
    return found - {MANIFEST}


# ---- reading: the disk may have changed it, or a person


def read(folder: Path, ranks: Ranks = ALONE) -> Snapshot:
    """The snapshot of a checkpoint, or one FileError that says what is not as its manifest has it."""
    check(folder)
    return read_checked(folder, ranks)


def read_checked(folder: Path, ranks: Ranks = ALONE) -> Snapshot:
    """The same of one that was just checked. Every tensor is whole, and is read when it is asked for."""
    state = _state(folder)
    model = model_folder.read(folder / MODEL)
    stored = read_tensors(folder / MODEL)
    weights = Kept({name: [stored[name]] for name in model.config.parameters()})
    index = read_table(folder / INDEX, LARGEST_INDEX)
    files = _Files(folder)
    with strict(folder / INDEX):
        need(type(index.get("ranks")) is int, "it does not say how many ranks there were")
        raw, optimizer = (Kept(_pieces(index.get(part), files, part)) for part in TENSORS)
    same = index["ranks"] == ranks.world
    dice = {name: [tensor] for name, tensor in files(ranks.rank, DICE).items()} if same else {}
    return Snapshot(
        step=state["step"],
        config=model.config,
        weights=raw or weights,
        tokenizer=model.tokenizer,
        optimizer=optimizer,
        ema=weights if raw else {},
        rng=Kept(dice),
        loader=state["loader"],
        plain=state["plain"],
        meters=state["meters"],
        name=model.name,
    )


class Kept(Mapping[str, torch.Tensor]):
    """Tensors in files: each is put together when it is asked for, in memory of its own."""

    def __init__(self, pieces: Mapping[str, Sequence[Stored]]) -> None:
        self.pieces = pieces

    def __getitem__(self, name: str) -> torch.Tensor:
        found = [_tensor(stored) for stored in self.pieces[name]]
        return torch.cat(found) if len(found) > 1 else found[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


class _Files:
    """The tensors that each rank has saved, by rank and part; each file is opened once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: dict[tuple[int, str], dict[str, Stored]] = {}

    def __call__(self, rank: int, part: str) -> dict[str, Stored]:
        if (rank, part) not in self.opened:
            path = self.folder / f"rank-{rank}" / f"{part}.safetensors"
            self.opened[rank, part] = read_file(path, KNOWN)
        return self.opened[rank, part]


def _pieces(table: Any, files: _Files, part: str) -> dict[str, list[Stored]]:
    """The pieces of each tensor in the order of their rows, none missing and none twice."""
    need(isinstance(table, dict), f"it has no table {part!r}")
    found = {}
    for name, entry in table.items():
        good = isinstance(entry, dict) and set(entry) == {"shape", "pieces"} and _pairs(entry["pieces"])
        need(good and isinstance(entry["shape"], list), f"it does not say where {shown(name)} is")
        pieces: list[Stored] = []
        rows, shape = 0, tuple(entry["shape"])
        for rank, first in sorted(entry["pieces"], key=lambda pair: pair[1]):
            have = files(rank, part)
            need(name in have, f"rank {rank} has not saved {shown(name)}")
            one = have[name]
            need(
                first == rows and one.shape[1:] == shape[1:] and len(one.shape) == len(shape),
                f"the piece of {shown(name)} of rank {rank} does not fit the others",
            )
            need(not pieces or one.type == pieces[0].type, f"the pieces of {shown(name)} are of two types")
            pieces.append(one)
            rows += one.shape[0] if one.shape else 0
        need(bool(pieces) and rows == (shape[0] if shape else 0), f"{shown(name)} is not complete")
        found[name] = pieces
    return found


def _pairs(given: Any) -> bool:
    """Whether it is a list of [rank, first row]."""
    return isinstance(given, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(x) is int and x >= 0 for x in pair)
        for pair in given
    )


def check(folder: Path) -> None:
    """A FileError unless the folder is, byte for byte, what was saved."""
    entries = outline(folder)
    with strict(folder), _reading(folder):
        for name, entry in entries.items():
            need(_entry(folder / name) == entry, f"the content of {name} is not what was saved")


def outline(folder: Path) -> dict[str, Any]:
    """What the manifest says of each file; a FileError unless they are there, each of its size.

    This is quick and sees whatever is missing or cut off; `check` also sees what was changed.
    """
    path = folder / MANIFEST
    data = read_bytes(path, LARGEST_JSON)
    table = read_format(path, "checkpoint", FORMAT, VERSION)
    step, entries = table.get("step"), table.get("files")
    with strict(path):
        need(type(step) is int and step >= 0 and isinstance(entries, dict), "it lists no files")
        need(data == _manifest_text(step or 0, entries or {}), "it is not as it was written")
    with strict(folder), _reading(folder):
        wanted = name_of(step or 0)
        need(folder.resolve().name == wanted, f"its files are those of {wanted}")
        found, listed = _listing(folder), dict(entries or {})
        for name, entry in listed.items():
            need(name in found, f"{shown(name)} is missing")
            need(isinstance(entry, dict) and set(entry) == {"bytes", "sha256"}, f"{name} has no checksum")
            about = (folder / name).lstat()
            need(stat.S_ISREG(about.st_mode), f"{name} is no file of its own")
            need(about.st_size == entry["bytes"], f"{name} has {about.st_size} bytes, not {entry['bytes']}")
        for name in found:
            need(name in listed, f"{shown(name)} does not belong there")
    return listed


def environment_of(folder: Path) -> dict[str, Any]:
    """What the bits of a checkpoint depend on."""
    return dict(_state(folder)["environment"])


def recipe_of(folder: Path) -> dict[str, Any]:
    """The recipe of the run that saved a checkpoint."""
    return dict(_state(folder)["recipe"])


def _state(folder: Path) -> dict[str, Any]:
    state = read_table(folder / STATE)
    with strict(folder / STATE):
        need(type(state.get("step")) is int, "it does not say at which step it was saved")
        need(name_of(state["step"]) == folder.resolve().name, f"it is that of step {state['step']}")
        for key in PLAIN:
            need(isinstance(state.get(key), dict), f"it has no table {key!r}")
    return state


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot read {error.filename or folder}: {error.strerror or error}.") from None


def _tensor(stored: Stored) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(stored.bits()))
    return tensor.view(torch.bfloat16) if stored.type == "BF16" else tensor
