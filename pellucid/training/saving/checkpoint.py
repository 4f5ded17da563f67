"""A checkpoint: all that a run is at one moment, in a folder that is complete or not there.

    step-0000500/
        model/                      a model folder like any other: the weights to be used, their running mean
                                    where there is one, and where there are adapters their sum with the base
        adapter/                    where the run has adapters: these alone, for the model that it began from
        rank-0/                     what one rank has of the rest; of several, each has such a folder
            raw.safetensors         what learns as the optimizer left it, where the model holds something else
            mean.safetensors        the running mean of adapters, which the model holds as a sum only
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
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from pellucid import pretrained as interop
from pellucid.config import ModelConfig
from pellucid.errors import FileError, ResourceError, UsageError, file_error
from pellucid.files import fsync_folder, need, validating, whole_file
from pellucid.interop import model_folder
from pellucid.interop.adapter import Adapter, write_adapter
from pellucid.interop.folder import read_table
from pellucid.interop.safetensors_file import LARGEST_INDEX, read_tensors, write_file
from pellucid.text.tokenizer import Tokenizer
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.saving import manifest
from pellucid.training.saving.manifest import (
    ADAPTER,
    MANIFEST,
    MODEL,
    PARTIAL,
    check,
    listing,
    measured,
    name_of,
)
from pellucid.training.saving.shards import (
    TENSORS,
    Files,
    Kept,
    gathered,
    index_text,
    own,
    pieces_of,
    storable,
)

STATE, INDEX = "state.json", "index.json"
DICE = "rng"
"""What each rank has for itself."""
PLAIN = ("plain", "loader", "meters", "recipe", "environment")
"""The tables of state.json."""
_COUNT = itertools.count()


class Snapshot(NamedTuple):
    """Everything that a run is at one moment. Tensors are on any device, whole or in pieces; tables hold what
    JSON can hold. There are no dice where they were those of other ranks."""

    step: int
    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
    """Those to be used: where there is a running mean, the mean; where there are adapters, merged."""
    tokenizer: Tokenizer | None
    optimizer: Mapping[str, torch.Tensor]
    rng: Mapping[str, torch.Tensor]
    loader: dict[str, int]
    plain: dict[str, Any]
    meters: dict[str, Any]
    name: str = ""
    raw: Mapping[str, torch.Tensor] = MappingProxyType({})
    """What learns as the optimizer left it, where `weights` hold something else."""
    mean: Mapping[str, torch.Tensor] = MappingProxyType({})
    """The running mean of adapters, which `weights` do not hold by themselves."""
    adapter: Adapter | None = None
    like: interop.Pretrained | None = None
    """The model that the run began from, whose chat template and ends its own has."""

    def left(self, name: str) -> torch.Tensor:
        """A parameter as the optimizer left it."""
        return self.raw[name] if name in self.raw else self.weights[name]

    def averaged(self, name: str) -> torch.Tensor:
        """Its running mean, where the run has one."""
        return self.mean[name] if name in self.mean else self.weights[name]


# ---- writing


def write(
    folder: Path,
    snapshot: Snapshot,
    recipe: Mapping[str, Any],
    environment: Mapping[str, Any],
    ranks: Ranks = SINGLE_PROCESS,
) -> Path:
    """Save a snapshot as `folder`/step-…; what is complete in the folder stays so, whatever happens.

    All ranks take part, each with what it has; where one of them fails, none has saved.
    """
    pieces = {part: own(getattr(snapshot, part), ranks) for part in TENSORS}
    mine = {part: {name: one.rows for name, one in found.items()} for part, found in pieces.items()}
    files = {part: storable(part, tensors) for part, tensors in [*mine.items(), (DICE, snapshot.rng)]}
    model = pretrained(snapshot, ranks)
    state = _state_text(snapshot, recipe, environment)
    made = folder / name_of(snapshot.step)

    def own_part() -> dict[str, Any]:
        """This rank's files, and what the first one has to know of them."""
        here = new / f"rank-{ranks.rank}"
        here.mkdir()
        for part, tensors in files.items():
            if tensors:
                write_file(here / f"{part}.safetensors", tensors)
        folders = [here.name]
        if ranks.is_main:
            model_folder.write(new / MODEL, model)
            folders.append(MODEL)
        if ranks.is_main and snapshot.adapter:
            write_adapter(new / ADAPTER, snapshot.adapter)
            folders.append(ADAPTER)
        fsync_folder(new)
        entries = {f"{at}/{name}": measured(new / at / name) for at in folders for name in listing(new / at)}
        where = {part: {n: [one.first, one.shape] for n, one in p.items()} for part, p in pieces.items()}
        return {"entries": entries, "pieces": where}

    with _telling(folder, snapshot):
        new = folder / ranks.on_main_then_broadcast(lambda: _temporary(folder, made.name))
        try:
            parts = ranks.gather_results(own_part)
            ranks.on_main_then_broadcast(lambda: _complete(new, made, snapshot.step, state, parts))
        finally:
            if ranks.is_main:
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
        file.write(index_text([part["pieces"] for part in parts]))
    with whole_file(new / STATE) as file:
        file.write(state)
    entries = {name: measured(new / name) for name in (INDEX, STATE)}
    for part in parts:
        entries |= part["entries"]
    with whole_file(new / MANIFEST) as file:
        file.write(manifest.text(step, dict(sorted(entries.items()))))
    old = new.with_name(f"{new.name}-old")
    try:
        if made.exists():
            made.rename(old)
        new.rename(made)
        fsync_folder(made.parent)
    finally:
        if old.exists() and not made.exists():
            old.rename(made)
        shutil.rmtree(old, ignore_errors=True)


def bytes_of(snapshot: Snapshot) -> int:
    """How many bytes its tensors take: the whole checkpoint, but for a few kilobytes."""
    tables = (snapshot.weights, snapshot.raw, snapshot.mean, snapshot.optimizer, snapshot.rng)
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
            raise ResourceError(f"cannot write {folder}: there is no room for it.")
        yield
    except (OSError, FileError) as error:
        if isinstance(error, OSError):
            error = file_error("write", error.filename or folder, error)
        reason = str(error)
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(folder).free
            reason = f"{reason} {about.format(free=free)}"
        raise type(error)(reason) from None


def pretrained(snapshot: Snapshot, ranks: Ranks) -> interop.Pretrained:
    """The model in the form that model folders are written from, each weight fetched when its turn comes."""
    shapes = {name: tuple(tensor.shape) for name, tensor in snapshot.weights.items()}
    if why := interop.shape_mismatch(snapshot.config.parameters(), shapes):
        raise UsageError(f"the weights of the run are not those of its config: {why}.")
    stored, like = storable("weights", gathered(snapshot.weights, ranks)), snapshot.like
    return interop.Pretrained(
        chat_template=like.chat_template if like else None,
        add_bos=like.add_bos if like else False,
        generation=like.generation if like else {},
        name=snapshot.name,
        config=snapshot.config,
        weights=interop.LazyWeights(
            {name: interop.LazyTensor(s.shape, s.bits) for name, s in stored.items()}
        ),
        tokenizer=snapshot.tokenizer,
        provenance=interop.Provenance(
            Path(), model_folder.MODEL_TYPE, "", {name: s.type for name, s in stored.items()}, 0
        ),
    )


def _state_text(snapshot: Snapshot, recipe: Mapping[str, Any], environment: Mapping[str, Any]) -> bytes:
    tables = (snapshot.plain, snapshot.loader, snapshot.meters, dict(recipe), dict(environment))
    table = {"step": snapshot.step, **dict(zip(PLAIN, tables, strict=True))}
    return (json.dumps(table, indent=1) + "\n").encode()


# ---- reading: the disk may have changed it, or a person


def read(folder: Path, ranks: Ranks = SINGLE_PROCESS) -> Snapshot:
    """The snapshot of a checkpoint, or one FileError that says what is not as its manifest has it."""
    check(folder)
    return read_checked(folder, ranks)


def read_checked(folder: Path, ranks: Ranks = SINGLE_PROCESS) -> Snapshot:
    """The same of one that was just checked. Every tensor is whole, and is read when it is asked for."""
    state = _state(folder)
    model = model_folder.read(folder / MODEL)
    stored = read_tensors(folder / MODEL)
    weights = Kept({name: [stored[name]] for name in model.config.parameters()})
    index = read_table(folder / INDEX, LARGEST_INDEX)
    files = Files(folder)
    with validating(folder / INDEX):
        need(type(index.get("ranks")) is int, "it does not say how many ranks there were")
        parts = {part: Kept(pieces_of(index.get(part), files, part)) for part in TENSORS}
    same = index["ranks"] == ranks.world
    dice = {name: [tensor] for name, tensor in files(ranks.rank, DICE).items()} if same else {}
    return Snapshot(
        step=state["step"],
        config=model.config,
        weights=weights,
        tokenizer=model.tokenizer,
        optimizer=parts["optimizer"],
        rng=Kept(dice),
        loader=state["loader"],
        plain=state["plain"],
        meters=state["meters"],
        name=model.name,
        raw=parts["raw"],
        mean=parts["mean"],
        like=model,
    )


def environment_of(folder: Path) -> dict[str, Any]:
    """What the bits of a checkpoint depend on."""
    return dict(_state(folder)["environment"])


def recipe_of(folder: Path) -> dict[str, Any]:
    """The recipe of the run that saved a checkpoint."""
    return dict(_state(folder)["recipe"])


def _state(folder: Path) -> dict[str, Any]:
    state = read_table(folder / STATE)
    with validating(folder / STATE):
        need(type(state.get("step")) is int, "it does not say at which step it was saved")
        need(name_of(state["step"]) == folder.resolve().name, f"it is that of step {state['step']}")
        for key in PLAIN:
            need(isinstance(state.get(key), dict), f"it has no table {key!r}")
    return state
