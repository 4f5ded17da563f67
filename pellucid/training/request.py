"""The recipe that a user asks for: a shipped one, a .toml file, or one that is planned for texts.

request = make_request(["my.txt"], ["optimizer.lr=3e-4"], minutes=5)
request.recipe, request.notes
"""

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.data import conversation_file
from pellucid.data.sources.encoding import named_tokenizer
from pellucid.data.sources.source import kind_of
from pellucid.engine.device_memory import get_device_memory
from pellucid.engine.initializations import check_kind
from pellucid.training.device import resolve_device
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.forecast import check_out, text_bytes
from pellucid.training.machine import SPEED_SECONDS, Machine
from pellucid.training.plan import SIZES, Budget, Plan, describe_longer, plan_finetuning, plan_pretraining
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import is_shipped, override, read_table
from pellucid.training.recipe.sections import read_preset
from pellucid.training.start import resolve_recipe

MINUTES = 10.0
"""How long a run for texts may take, where no time is given."""
LONGER = 10
"""A plan says what this many times the minutes would buy."""


class TrainRequest(NamedTuple):
    recipe: Recipe
    notes: list[str]
    """Lines for the user: the reasons of a plan."""
    is_planned: bool
    """Whether the recipe was planned for texts."""


def make_request(
    names: Sequence[str],
    overrides: Sequence[str] = (),
    minutes: float | None = None,
    ranks: Ranks = SINGLE_PROCESS,
) -> TrainRequest:
    """Returns the recipe for texts, for the name of a shipped recipe, or for a .toml file.

    A name that both a text and a recipe have is the recipe's where it is the only name. `minutes` is how long
    a run for texts may take.
    """
    is_single = len(names) == 1
    recipe = next((name for name in names if name.endswith(".toml") or is_shipped(name)), None)
    if recipe is None or not (is_single or not os.path.exists(recipe) or recipe.endswith(".toml")):
        for name in names:
            if not os.path.exists(name) and not glob.has_magic(name):
                read_table(name)  # raises the error that lists the recipes
        planned, reasons = plan_recipe(names, overrides, MINUTES if minutes is None else minutes, ranks)
        return TrainRequest(planned, reasons, is_planned=True)
    if not is_single:
        other = next((name for name in names if name != recipe), recipe)
        raise UsageError(
            f"{recipe} is a recipe, and a run has one recipe: omit {other}, or set data.path={other}."
        )
    if minutes is not None:
        raise UsageError(
            f"minutes plans a run for texts, and {recipe} is a recipe: set steps=… instead; --dry-run says "
            "how long that takes."
        )
    return TrainRequest(Recipe.from_dict(override(read_table(recipe), overrides)), [], is_planned=False)


def plan_recipe(
    texts: Sequence[str], overrides: Sequence[str], minutes: float, ranks: Ranks
) -> tuple[Recipe, list[str]]:
    """Returns a recipe for texts, and the reasons for it, one line each.

    The texts are checked before anything is measured.
    """
    table = {"out": default_out(texts), "data": {"path": list(texts)}, "model": {}}
    if other := next((change for change in overrides if change.startswith("data.path=")), ""):
        raise UsageError(
            f"{texts[0]} and {other} both name texts: list all texts, or set data.path in a recipe."
        )
    draft = _draft(table, overrides)
    planned, reasons = ranks.on_main_then_broadcast(lambda: _plan(draft, overrides, minutes, ranks))
    defaults = [f"{key}={value}" for key, value in planned.items()]
    replaced = [change for change in overrides if change.partition("=")[0] in (*planned, "data.epochs")]
    notes = [f"instead of some of this, as asked: {' '.join(replaced)}"] * bool(replaced)
    return Recipe.from_dict(override(table, [*defaults, *overrides])), [*reasons, *notes]


def default_out(texts: Sequence[str]) -> str:
    """Returns the run folder: runs/ and the name of the text, or of the folder that holds all texts.

    >>> default_out(["books/dune.txt"]), default_out(["books/a.txt", "books/b.txt"])
    ('runs/dune', 'runs/books')
    """
    paths = [Path(text) for text in texts]
    if len(paths) == 1:
        return f"runs/{paths[0].stem or paths[0].resolve().name or 'text'}"
    common = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    return f"runs/{common.name or paths[0].stem or 'text'}"


def _draft(table: dict[str, Any], overrides: Sequence[str]) -> Recipe:
    """Returns the recipe with the user's keys and nothing planned, so that a wrong key is refused first."""
    draft = override(table, overrides)
    draft.setdefault("steps", 1)
    train = draft.get("train")
    parts = train.get("accumulate") if isinstance(train, dict) else 1
    usual = {
        "model": {"context_length": 8},
        "data": {"batch_size": parts if type(parts) is int and 1 <= parts <= 2**20 else 1},
    }
    for key, values in usual.items():
        if isinstance(draft[key], dict):  # else it is refused below
            draft[key] = values | draft[key]
    return Recipe.from_dict(draft)


def _plan(
    draft: Recipe, overrides: Sequence[str], minutes: float, ranks: Ranks
) -> tuple[dict[str, Any], tuple[str, ...]]:
    device = str(resolve_device(draft.train.device))
    check_out(draft)
    if not draft.start:
        named_tokenizer(draft.data)
        ModelConfig.check_choices(draft.model)
        check_kind(draft.train.initialization)
    start = resolve_recipe(draft)[1] if draft.start else None
    shape = {} if start else _read_shape(overrides)
    size, records = text_bytes(draft), _count_records(draft)
    machine = Machine(draft, device, ranks.is_single_process, min(SPEED_SECONDS, 6 * minutes))

    def make(utilization: float | None = None, largest: int = len(SIZES), times: int = 1) -> Plan:
        peak, memory = machine.peak * ranks.world, get_device_memory(device)
        budget = Budget(times * minutes, peak, memory, utilization)
        if start is not None:
            how = "adapters" if draft.lora.rank else "full"
            return plan_finetuning(size, budget, start.config, how, records)
        return plan_pretraining(size, budget, largest, shape)

    plan, utilization, longer = make(), None, []
    is_fixed = any(change.startswith(("steps=", "data.epochs=")) for change in overrides)
    if not is_fixed or len(machine.counts) > 1:
        utilization = machine.measure_utilization(plan)
        if utilization and not is_fixed:
            better = make(utilization)
            if better.size != plan.size:  # another model reaches another fraction of the peak
                utilization = machine.measure_utilization(better) or utilization
                better = make(utilization, better.size)
            plan = better
    if not is_fixed:
        longer = [describe_longer(plan, make(utilization, times=LONGER), LONGER)]
    more = {} if is_fixed else {"minutes": minutes}
    if machine.count != torch.get_num_threads():
        more["train.threads"] = machine.count
    return plan.overrides | more, (*plan.reasons, *longer, *filter(None, [machine.message]))


def _read_shape(overrides: Sequence[str]) -> Mapping[str, Any]:
    """Returns the keys of the model that the user chose, where its width is among them; otherwise none."""
    own = [change for change in overrides if change.partition("=")[0].partition(".")[0] == "model"]
    shape = override({}, own).get("model", {})
    shape = read_preset(shape, "model") if isinstance(shape, str) else shape
    return shape if "d_model" in shape else {}


def _count_records(recipe: Recipe) -> int:
    """Returns the number of conversations; 0 where the texts are plain."""
    if kind_of(recipe.data) != "conversations":
        return 0
    return sum(1 for path in recipe.data.paths for _ in conversation_file.read(path))
