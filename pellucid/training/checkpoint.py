"""A checkpoint: all that a run is at one moment, in a folder that is complete or not there.

    step-0000500/
        model/                  a model folder like any other, its weights in the type they are trained in
        adapter/                where the run has adapters: these alone, for the model that it began from
        raw.safetensors         where they are needed to go on: the adapters as the optimizer left them
        optimizer.safetensors   moments and counters under the parameters' names
        ema.safetensors         the running mean of the weights
        rng.safetensors         the dice
        state.json              the numbers that are no tensors, the recipe, what the bits depend on
        manifest.json           size and SHA-256 of each of these, and of itself

It is written under another name, each file brought to the disk before the next, the manifest last; then
renamed. So a folder called step-… is complete at whatever moment the process, or the power, was cut off, and
what changes in it later no longer fits its manifest.
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
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.errors import AskedWrongly, FileError
from pellucid.files import need, read_format, settle, strict, whole_file
from pellucid.interop import adapter_folder, model_folder
from pellucid.interop import pretrained as interop
from pellucid.interop.adapter_folder import Adapter
from pellucid.interop.folder import LARGEST_JSON, has, read_bytes, read_table, shown
from pellucid.interop.safetensors_file import Stored, read_file, read_tensors, write_file
from pellucid.text.tokenizer import Tokenizer

FORMAT, VERSION = "pellucid-checkpoint", 1
MANIFEST, STATE, MODEL, ADAPTER = "manifest.json", "state.json", "model", "adapter"
PARTIAL = ".tmp-"
TENSORS = ("optimizer", "ema", "rng", "raw")
"""The parts of a snapshot with a safetensors file of their own."""
SOMETIMES = ("raw",)
"""Those that have none where there is nothing to put into it."""
PLAIN = ("plain", "loader", "meters", "types", "recipe", "environment")
"""The tables of state.json."""
FLOATS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
WHOLE = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
}
_NAME = re.compile(r"step-(\d{7,15})")
_COUNT = itertools.count()


class Snapshot(NamedTuple):
    """Everything that a run is at one moment. Tensors are on any device; tables hold what JSON can hold."""

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
    raw: Mapping[str, torch.Tensor] = MappingProxyType({})
    """What goes on from here, where that is not the weights themselves: adapters, of which they hold the sum
    with what was adapted."""
    adapter: Adapter | None = None
    like: interop.Pretrained | None = None
    """The model that the run began from, whose chat template and ends its own has."""


def name_of(step: int) -> str:
    return f"step-{step:07d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's name, None where it is the name of something else."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found and name_of(int(found[1])) == name else None


# ---- writing


def write(
    folder: Path, snapshot: Snapshot, recipe: Mapping[str, Any], environment: Mapping[str, Any]
) -> Path:
    """Save a snapshot as `folder`/step-…; what is complete in the folder stays so, whatever happens."""
    files = {
        part: _storable(part, tensors)
        for part in TENSORS
        if (tensors := getattr(snapshot, part)) or part not in SOMETIMES
    }
    pretrained = _pretrained(snapshot)
    text = _state_text(snapshot, recipe, environment)
    made, count = folder / name_of(snapshot.step), next(_COUNT)
    new = folder / f"{PARTIAL}{made.name}-{os.getpid()}-{count}"
    old = folder / f"{PARTIAL}{made.name}-{os.getpid()}-{count}-old"
    with _telling(folder, snapshot):
        try:
            new.mkdir()
            model_folder.write(new / MODEL, pretrained)
            if snapshot.adapter:
                adapter_folder.write(new / ADAPTER, snapshot.adapter)
            for part, tensors in files.items():
                write_file(new / f"{part}.safetensors", tensors)
            with whole_file(new / STATE) as file:
                file.write(text)
            entries = {name: _entry(new / name) for name in sorted(_listing(new))}
            with whole_file(new / MANIFEST) as file:
                file.write(_manifest_text(snapshot.step, entries))
            if made.exists():
                made.rename(old)
            new.rename(made)
            settle(folder)
        finally:
            if old.exists() and not made.exists():
                old.rename(made)
            for left in (new, old):
                shutil.rmtree(left, ignore_errors=True)
    return made


def bytes_of(snapshot: Snapshot) -> int:
    """How many bytes its tensors take: the whole checkpoint, but for a few kilobytes."""
    tables = (snapshot.weights, snapshot.raw, snapshot.optimizer, snapshot.ema, snapshot.rng)
    return sum(
        math.prod(tensor.shape) * (tensor.element_size() if tensor.dtype in FLOATS else 8)
        for tensors in tables
        for tensor in tensors.values()
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


def _pretrained(snapshot: Snapshot) -> interop.Pretrained:
    """The model in the form that model folders are written from, each weight fetched when its turn comes."""
    wanted = snapshot.config.parameters()
    found = {name: tuple(tensor.shape) for name, tensor in snapshot.weights.items()}
    if found != wanted:
        wrong = next(name for name in [*wanted, *found] if wanted.get(name) != found.get(name))
        raise AskedWrongly(
            f"the weight {wrong} has the shape {found.get(wrong)} in the run, and its config says "
            f"{wanted.get(wrong)}."
        )
    stored, like = _storable("weights", snapshot.weights), snapshot.like
    return interop.Pretrained(
        chat_template=like.chat_template if like else None,
        add_bos=like.add_bos if like else False,
        generation=like.generation if like else {},
        name=snapshot.name,
        config=snapshot.config,
        weights=interop.Weights({name: interop.Tensor(s.shape, s.bits) for name, s in stored.items()}),
        tokenizer=snapshot.tokenizer,
        source=interop.Source(
            Path(), model_folder.MODEL_TYPE, "", {name: s.type for name, s in stored.items()}, 0
        ),
    )


def _storable(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Stored]:
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS and (part == "weights" or tensor.dtype not in WHOLE.values()):
            raise AskedWrongly(f"{part}: {name} is {tensor.dtype}, which a checkpoint cannot hold.")
    return {
        name: Stored(FLOATS.get(tensor.dtype, "F64"), tuple(tensor.shape), partial(_bits, name, tensor))
        for name, tensor in tensors.items()
    }


def _bits(name: str, tensor: torch.Tensor) -> interop.Array:
    """A tensor's numbers as a file has them: bfloat16 as its bits, whole numbers as the same in float64."""
    here = tensor.detach().cpu().contiguous()
    if here.dtype == torch.bfloat16:
        here = here.view(torch.uint16)
    elif here.dtype not in FLOATS:
        wide = here.double()
        if not torch.equal(wide.to(here.dtype), here):
            raise AskedWrongly(f"{name} has whole numbers beyond 2⁵³, which a checkpoint cannot hold.")
        here = wide
    return np.asarray(here.numpy())


def _state_text(snapshot: Snapshot, recipe: Mapping[str, Any], environment: Mapping[str, Any]) -> bytes:
    types = {
        part: {
            name: str(tensor.dtype).removeprefix("torch.")
            for name, tensor in getattr(snapshot, part).items()
            if tensor.dtype not in FLOATS
        }
        for part in TENSORS
    }
    tables = (snapshot.plain, snapshot.loader, snapshot.meters, types, dict(recipe), dict(environment))
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


def read(folder: Path) -> Snapshot:
    """The snapshot of a checkpoint, or one FileError that says what is not as its manifest has it."""
    check(folder)
    state = _state(folder)
    model = model_folder.read(folder / MODEL)
    weights = read_tensors(folder / MODEL)
    with strict(folder):
        parts = {
            part: _tensors(read_file(folder / f"{part}.safetensors"), state["types"].get(part, {}))
            for part in TENSORS
            if part not in SOMETIMES or has(folder, f"{part}.safetensors")
        }
    return Snapshot(
        step=state["step"],
        config=model.config,
        weights=_tensors({name: weights[name] for name in model.config.parameters()}, {}),
        tokenizer=model.tokenizer,
        optimizer=parts["optimizer"],
        ema=parts["ema"],
        rng=parts["rng"],
        raw=parts.get("raw", {}),
        loader=state["loader"],
        plain=state["plain"],
        meters=state["meters"],
        name=model.name,
        like=model,
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
        for key in state["types"]:
            need(isinstance(state["types"][key], dict), f"its types of {shown(key)} are no table")
    return state


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot read {error.filename or folder}: {error.strerror or error}.") from None


def _tensors(stored: Mapping[str, Stored], types: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a file, in memory of their own and of the types that they had."""
    found = {}
    for name, entry in stored.items():
        tensor = torch.from_numpy(np.array(entry.bits()))
        tensor = tensor.view(torch.bfloat16) if entry.type == "BF16" else tensor
        if name in types:
            need(types[name] in WHOLE, f"{shown(name)} is of the type {shown(types[name])}")
            tensor = tensor.to(WHOLE[types[name]])
        found[name] = tensor
    return found
