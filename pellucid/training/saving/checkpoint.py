"""A checkpoint: the whole state of a run at one step, in a folder that is complete or absent.

    step-0000500/
        model/                      a model folder: the weights to use, averaged where the run averages them
                                    and merged with their adapters where it has some
        adapter/                    the adapters alone, for the model that the run started from
        rank-0/                     what one rank has of the rest; each of several ranks has such a folder
            raw.safetensors         trainable weights before averaging and merging, where model/ differs
            mean.safetensors        averaged adapters, which model/ holds merged only
            optimizer.safetensors   moments and counters under the parameters' names
            rng.safetensors         RNG states
        index.json                  the shape of each tensor, and the first row of each rank's piece
        state.json                  plain numbers, the recipe, and what the bits depend on
        manifest.json               size and SHA-256 of each of these, and of itself

It is written under a temporary name, each file synced before the next, the manifest last and by the main rank
alone; then renamed. So a folder called step-… is complete whenever the process or the power fails, and a
later change of it no longer fits its manifest. Pieces are joined when they are read, so that any number of
ranks can continue from them.
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

from pellucid.base.errors import FileError, ResourceError, UsageError, file_error
from pellucid.base.files import fsync_folder, need, validating, whole_file
from pellucid.config import ModelConfig
from pellucid.data.loader import begins_with_bos
from pellucid.formats import model_folder
from pellucid.formats import pretrained as interop
from pellucid.formats.adapter import Adapter, write_adapter
from pellucid.formats.checkpoint_manifest import (
    ADAPTER,
    MANIFEST,
    MODEL,
    PARTIAL,
    check_contents,
    checkpoint_name,
    format_manifest,
    list_files,
    measure,
)
from pellucid.formats.folder import read_table
from pellucid.formats.safetensors_file import MAX_INDEX_BYTES, read_tensors, write_file
from pellucid.text.tokenizer import Tokenizer
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.saving.shards import (
    PARTS,
    JoinedTensors,
    RankFiles,
    find_pieces,
    format_index,
    gather,
    select_own,
    to_stored,
)

STATE, INDEX = "state.json", "index.json"
RNG = "rng"
"""The file that each rank has for itself."""
PLAIN = ("plain", "loader", "meters", "recipe", "environment")
"""The tables of state.json."""
_COUNT = itertools.count()


class Snapshot(NamedTuple):
    """The whole state of a run at one step. Tensors are on any device, full or sharded; tables hold what JSON
    can hold. `rng` is empty where the states are those of another number of ranks."""

    step: int
    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
    """The weights to use: averaged where the run averages them, and merged with adapters."""
    tokenizer: Tokenizer | None
    optimizer: Mapping[str, torch.Tensor]
    rng: Mapping[str, torch.Tensor]
    loader: dict[str, int]
    plain: dict[str, Any]
    meters: dict[str, Any]
    name: str = ""
    trainable: Mapping[str, torch.Tensor] = MappingProxyType({})
    """Trainable weights before averaging and merging, where `weights` differ from them."""
    averaged_adapters: Mapping[str, torch.Tensor] = MappingProxyType({})
    """The running average of adapters, which `weights` hold merged only."""
    adapter: Adapter | None = None
    base: interop.Pretrained | None = None
    """The model that the run started from, whose chat template and end tokens its own has."""

    def get_trainable(self, name: str) -> torch.Tensor:
        """Returns a parameter before averaging and merging, as the optimizer updates it."""
        return self.trainable[name] if name in self.trainable else self.weights[name]

    def get_average(self, name: str) -> torch.Tensor:
        """Returns the running average of a parameter, where the run averages."""
        return self.averaged_adapters[name] if name in self.averaged_adapters else self.weights[name]


# ---- writing


def write(
    folder: Path,
    snapshot: Snapshot,
    recipe: Mapping[str, Any],
    environment: Mapping[str, Any],
    ranks: Ranks = SINGLE_PROCESS,
) -> Path:
    """Writes a snapshot to `folder`/step-…; complete checkpoints stay complete, whatever happens.

    All ranks take part, each with its rows; where one of them fails, nothing is saved.
    """
    pieces = {part: select_own(getattr(snapshot, field), ranks) for part, field in PARTS.items()}
    own = {part: {name: piece.rows for name, piece in found.items()} for part, found in pieces.items()}
    files = {part: to_stored(part, tensors) for part, tensors in [*own.items(), (RNG, snapshot.rng)]}
    model = make_pretrained(snapshot, ranks)
    state = _state_text(snapshot, recipe, environment)
    path = folder / checkpoint_name(snapshot.step)

    def write_own() -> dict[str, Any]:
        """Writes this rank's files; returns their entries of the manifest and of the index."""
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
        entries = {
            f"{at}/{name}": measure(new / at / name) for at in folders for name in list_files(new / at)
        }
        index = {part: {n: [one.first, one.shape] for n, one in p.items()} for part, p in pieces.items()}
        return {"entries": entries, "pieces": index}

    with _explain_errors(folder, snapshot):
        new = folder / ranks.on_main_then_broadcast(lambda: _make_temporary(folder, path.name))
        try:
            parts = ranks.gather_results(write_own)
            ranks.on_main_then_broadcast(lambda: _finish(new, path, snapshot.step, state, parts))
        finally:
            if ranks.is_main:
                shutil.rmtree(new, ignore_errors=True)
    return path


def _make_temporary(folder: Path, name: str) -> str:
    """Makes a folder for the files until they are complete; returns its name."""
    new = folder / f"{PARTIAL}{name}-{os.getpid()}-{next(_COUNT)}"
    new.mkdir()
    return new.name


def _finish(new: Path, path: Path, step: int, state: bytes, parts: Sequence[dict[str, Any]]) -> None:
    """Writes index, state and manifest; then renames the folder."""
    with whole_file(new / INDEX) as file:
        file.write(format_index([part["pieces"] for part in parts]))
    with whole_file(new / STATE) as file:
        file.write(state)
    entries = {name: measure(new / name) for name in (INDEX, STATE)}
    for part in parts:
        entries |= part["entries"]
    with whole_file(new / MANIFEST) as file:
        file.write(format_manifest(step, dict(sorted(entries.items()))))
    old = new.with_name(f"{new.name}-old")
    try:
        if path.exists():
            path.rename(old)
        new.rename(path)
        fsync_folder(path.parent)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(old, ignore_errors=True)


def count_bytes(snapshot: Snapshot) -> int:
    """Returns the bytes of its tensors: the whole checkpoint, but for a few kilobytes."""
    averaged = snapshot.averaged_adapters
    tables = (snapshot.weights, snapshot.trainable, averaged, snapshot.optimizer, snapshot.rng)
    return sum(
        math.prod(tensor.shape) * tensor.element_size() for tensors in tables for tensor in tensors.values()
    )


@contextlib.contextmanager
def _explain_errors(folder: Path, snapshot: Snapshot) -> Iterator[None]:
    """Adds to an error of the disk how many bytes a checkpoint takes, and that nothing was lost."""
    takes = count_bytes(snapshot)
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


def make_pretrained(snapshot: Snapshot, ranks: Ranks) -> interop.Pretrained:
    """Returns the model as model folders are written from it, each weight fetched when it is written."""
    shapes = {name: tuple(tensor.shape) for name, tensor in snapshot.weights.items()}
    if why := interop.shape_mismatch(snapshot.config.parameters(), shapes):
        raise UsageError(f"the weights of the run are not those of its config: {why}.")
    stored, base = to_stored("weights", gather(snapshot.weights, ranks)), snapshot.base
    return interop.Pretrained(
        chat_template=base.chat_template if base else None,
        add_bos=base.add_bos if base else begins_with_bos(snapshot.loader),
        generation=base.generation if base else {},
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
    """Returns the snapshot of a checkpoint; a FileError names what is not as in its manifest."""
    check_contents(folder)
    return read_checked(folder, ranks)


def read_checked(folder: Path, ranks: Ranks = SINGLE_PROCESS) -> Snapshot:
    """Returns the snapshot of a checkpoint that was just checked. Tensors are full, and read when used."""
    state = _read_state(folder)
    model = model_folder.read(folder / MODEL)
    stored = read_tensors(folder / MODEL)
    weights = JoinedTensors({name: [stored[name]] for name in model.config.parameters()})
    index = read_table(folder / INDEX, MAX_INDEX_BYTES)
    files = RankFiles(folder)
    with validating(folder / INDEX):
        need(type(index.get("ranks")) is int, "it does not say how many ranks there were")
        parts = {part: JoinedTensors(find_pieces(index.get(part), files, part)) for part in PARTS}
    is_same_world = index["ranks"] == ranks.world
    rng = {name: [tensor] for name, tensor in files(ranks.rank, RNG).items()} if is_same_world else {}
    return Snapshot(
        step=state["step"],
        config=model.config,
        weights=weights,
        tokenizer=model.tokenizer,
        optimizer=parts["optimizer"],
        rng=JoinedTensors(rng),
        loader=state["loader"],
        plain=state["plain"],
        meters=state["meters"],
        name=model.name,
        trainable=parts["raw"],
        averaged_adapters=parts["mean"],
        base=model,
    )


def read_environment(folder: Path) -> dict[str, Any]:
    """Returns what the bits of a checkpoint depend on."""
    return dict(_read_state(folder)["environment"])


def read_recipe(folder: Path) -> dict[str, Any]:
    """Returns the recipe of the run that saved a checkpoint."""
    return dict(_read_state(folder)["recipe"])


def _read_state(folder: Path) -> dict[str, Any]:
    state = read_table(folder / STATE)
    with validating(folder / STATE):
        need(type(state.get("step")) is int, "it does not say at which step it was saved")
        need(checkpoint_name(state["step"]) == folder.resolve().name, f"it is that of step {state['step']}")
        for key in PLAIN:
            need(isinstance(state.get(key), dict), f"it has no table {key!r}")
    return state
