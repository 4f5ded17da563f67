"""What happens before a run begins: the recipe for texts, and every check that the run would make.

All of it is done before anything is written, so that a request that cannot work is refused at once.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pellucid.config import ModelConfig
from pellucid.data import chat_records
from pellucid.data.sources.encoding import PROOF, check_texts, named_tokenizer, vocabulary_for
from pellucid.data.sources.source import kind_of, open_source
from pellucid.errors import ConfigError, FileError, UsageError
from pellucid.evaluation import validation
from pellucid.interop import named
from pellucid.model.transformer import Transformer
from pellucid.text.corpus.sources import PACKED, files
from pellucid.training import calibration, compiling, memory, peak, plan
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.scaling import share
from pellucid.training.loop import device_of, dtype_on, rows_of_a_rank
from pellucid.training.plan import Plan, readable_size
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.saving.run_folder import DATA, RunFolder
from pellucid.training.start import config_of, resolve_recipe
from pellucid.training.weights import Weights

MINUTES = 10.0
"""How long a run for a text may take, where no time is given."""
OFF = 1.25
"""A forecast that is wrong by more than this factor is made again with what was measured."""

# ---- the recipe for texts


def plan_recipe(
    texts: Sequence[str], changes: Sequence[str], minutes: float, ranks: Ranks
) -> tuple[Recipe, list[str]]:
    """A recipe for texts: sizes, steps and learning rate that fit them, the time and the machine; and the
    reasons, one line each. The texts are checked before anything is measured."""
    table = {"out": default_out(texts), "data": {"path": list(texts)}, "model": {}}
    if other := next((change for change in changes if change.startswith("data.path=")), ""):
        raise UsageError(
            f"{texts[0]} and {other} both name texts: list all texts, or set data.path in a recipe."
        )
    overrides, reasons = ranks.first_alone(lambda: _plan(_draft(table, changes), changes, minutes, ranks))
    chosen = [f"{key}={value}" for key, value in overrides.items()]
    instead = [change for change in changes if change.partition("=")[0] in overrides]
    asked = [f"instead of some of this, as you ask: {' '.join(instead)}"] * bool(instead)
    return Recipe.from_dict(override(table, [*chosen, *changes])), [*reasons, *asked]


def default_out(texts: Sequence[str]) -> str:
    """The folder of a run: runs/ and the name of the text, or of the folder that holds all texts.

    >>> default_out(["books/dune.txt"]), default_out(["books/a.txt", "books/b.txt"])
    ('runs/dune', 'runs/books')
    """
    paths = [Path(text) for text in texts]
    if len(paths) == 1:
        return f"runs/{paths[0].stem or paths[0].resolve().name or 'text'}"
    common = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    return f"runs/{common.name or paths[0].stem or 'text'}"


def _draft(table: dict[str, Any], changes: Sequence[str]) -> Recipe:
    """The recipe with what the user asks for and nothing planned: a wrong key is refused before all else."""
    asked = override(table, changes)
    asked.setdefault("steps", 1)
    train = asked.get("train")
    parts = train.get("accumulate") if isinstance(train, dict) else 1
    usual = {
        "model": {"context_length": 8},
        "data": {"batch_size": parts if type(parts) is int and 1 <= parts <= 2**20 else 1},
    }
    for key, values in usual.items():
        if isinstance(asked[key], dict):  # else it is refused below
            asked[key] = values | asked[key]
    return Recipe.from_dict(asked)


def _plan(
    draft: Recipe, changes: Sequence[str], minutes: float, ranks: Ranks
) -> tuple[dict[str, Any], tuple[str, ...]]:
    device = str(device_of(draft.train.device))
    check_out(draft)
    if not draft.start:
        named_tokenizer(draft.data)
    size = text_bytes(draft)
    machine = Machine(draft, device, ranks.alone, min(calibration.SECONDS, 6 * minutes))
    is_fixed = any(change.startswith("steps=") for change in changes)
    config = named.config_of(draft.start) if draft.start else None
    records = _records(draft)

    def make(utilization: float | None = None, largest: int = len(plan.SIZES)) -> Plan:
        limit = machine.peak * ranks.world
        if config is not None:
            how = "adapters" if draft.lora.rank else "full"
            return plan.tuned(size, minutes, limit, config, how, records, utilization)
        return plan.planned(size, minutes, limit, plan.machine_memory(device), utilization, largest)

    made = make()
    if not is_fixed or len(machine.counts) > 1:
        utilization = machine.measure_utilization(config or made.config(), made)
        if utilization and not is_fixed:
            better = make(utilization)
            if better.size != made.size:  # another model reaches another share of the peak
                utilization = machine.measure_utilization(better.config(), better) or utilization
                better = make(utilization, better.size)
            made = better
    chosen = {"train.threads": machine.count} if machine.count != torch.get_num_threads() else {}
    return made.overrides | chosen, (*made.reasons, *filter(None, [machine.message]))


class Machine:
    """How fast this machine is for a run, and with how many threads: first by matrix products alone, then by
    training steps."""

    def __init__(self, draft: Recipe, device: str, may_choose: bool, seconds: float) -> None:
        self.device, self.seconds, self.message = device, seconds, ""
        self.dtype = dtype_on(torch.device(device), draft.train.dtype, draft.train.weights)
        asked = draft.train.threads
        self.counts = [asked] if asked else peak.thread_counts(device)[: None if may_choose else 1]
        self.peaks = {count: self._peak(count) for count in self.counts}
        self._choose(self.peaks)

    def _choose(self, speeds: Mapping[int, float]) -> None:
        self.count = peak.fastest(speeds)
        self.peak = self.peaks[self.count]
        if len(speeds) > 1 or not self.message:
            self.message = peak.describe_threads(speeds, self.count)

    def _peak(self, threads: int) -> float:
        with peak.using_threads(threads):
            return peak.peak(self.device, self.dtype)

    def measure_utilization(self, config: ModelConfig, made: Plan) -> float | None:
        """The share of the peak that training steps of a plan reach; None where it is about what was assumed,
        or where a step would take too long to try. The first time it also chooses the number of threads."""
        keys, speeds = made.overrides, dict[int, float]()
        for count in self.counts:
            with peak.using_threads(count):
                found = calibration.measure_speed(
                    config,
                    keys["data.batch_size"],
                    keys["model.context_length"],
                    self.device,
                    self.dtype,
                    self.peak,
                    self.seconds / len(self.counts),
                )
            if found is None:
                return None
            speeds[count] = found
        self._choose(speeds)
        self.counts = [self.count]
        share = speeds[self.count] / self.peak
        return None if 1 / OFF <= share / plan.UTILISATION <= OFF else share


def hint_threads(recipe: Recipe, ranks: Ranks) -> list[str]:
    """Says where a recipe would train faster with fewer threads; its bits follow from their number, so that
    they are the user's to choose. Measured only where the machine is busy."""
    device = device_of(recipe.train.device)
    if recipe.train.threads or not ranks.alone or peak.load_average() < (os.cpu_count() or 1):
        return []
    machine = Machine(recipe, str(device), True, 0.0)
    remedy = f"train.threads={machine.count} would be faster"
    return list(filter(None, [peak.describe_threads(machine.peaks, machine.count, remedy)]))


def text_bytes(recipe: Recipe) -> int:
    """Bytes of the files that a run will read; every file of a text is checked on the way."""
    kind, paths = kind_of(recipe.data), recipe.data.paths
    if kind == "tokens":
        return sum(file.stat().st_size for file in Path(paths[0]).rglob("*") if file.is_file())
    read = check_texts(recipe.data).files if kind == "text" else paths
    return sum(os.path.getsize(file) for file in read if os.path.isfile(file))


def _records(recipe: Recipe) -> int:
    if kind_of(recipe.data) != "conversations":
        return 0
    return sum(1 for path in recipe.data.paths for _ in chat_records.read(path))


# ---- what a run would check


def check_out(recipe: Recipe) -> None:
    """Refuses an `out` in which no run can begin."""
    out = Path(recipe.out)
    RunFolder(out).check_new()
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise FileError(f"cannot write {out}: {above} is not a folder that may be written to.")


def check(recipe: Recipe, ranks: Ranks, is_new: bool = True) -> tuple[Recipe, ModelConfig]:
    """Everything that a run would refuse before its first step, without writing a file; returns the recipe
    with nothing left to choose, and the model's config with the vocabulary as far as it is known."""
    if is_new:
        check_out(recipe)
    device = device_of(recipe.train.device)
    rows_of_a_rank(recipe, ranks.world)
    recipe, start = resolve_recipe(recipe)
    cache = Path(recipe.out) / DATA
    if kind_of(recipe.data) == "text" and not (cache / PROOF).is_file():
        size = text_bytes(recipe)
        if start is None:
            named_tokenizer(recipe.data)
        vocab_size = recipe.data.vocab_size or _vocabulary(recipe, size)
        _check_length(recipe, size)
        share = recipe.data.validation
        validation.need_held_out(recipe, len(share) if isinstance(share, str) else share)
    else:
        source = open_source(recipe.data, recipe.length, recipe.seed, cache, start=start)
        validation.need(source, recipe)
        vocab_size = source.tokenizer.vocab_size
    config = config_of(recipe, start) if start else recipe.config(vocab_size)
    memory.check_fits(recipe, config, str(device), ranks.world)
    if not recipe.lora.rank:
        model = Transformer.empty(config, torch.device("meta"), torch.float32)
        Weights(model, recipe.train.only, recipe.train.freeze)
    compiling.chosen(lambda ids, _: ids, recipe, device, recipe.train.parallel == "fsdp" and not ranks.alone)
    return recipe, config


def _check_length(recipe: Recipe, size: int) -> None:
    """Refuses a text that has fewer bytes, and so fewer tokens, than one row takes."""
    is_packed = any(path.endswith(PACKED) for path in files(recipe.data.paths))
    most = 2 * size  # where each byte is a document, with a token for its end
    if not is_packed and most < recipe.length + 1:
        raise ConfigError(
            f"the text is too short: it has {size:,} bytes, and one row takes {recipe.length + 1} tokens. "
            "Use a smaller model.context_length, or more text."
        )


def _vocabulary(recipe: Recipe, size: int) -> int:
    return 256 if recipe.data.tokenizer in ("bytes", "characters") else vocabulary_for(size)


def forecast_lines(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> list[str]:
    """What a run will cost, for people."""
    asked, device = recipe.train, device_of(recipe.train.device)
    dtype = dtype_on(device, asked.dtype, asked.weights)  # auto has no width
    recipe = replace(recipe, train=replace(asked, dtype=dtype))
    if asked.threads:
        torch.set_num_threads(asked.threads)
    best = peak.peak(str(device), dtype)
    rows = rows_of_a_rank(recipe, ranks.world) // asked.accumulate
    speed = calibration.measure_speed(config, rows, recipe.length, str(device), dtype, best)
    found = plan.forecast(recipe, config, best * ranks.world, speed and speed / best)
    lines, there = found.lines(), plan.machine_memory(str(device))
    if found.memory.total > there:
        lines.append(f"may not fit       {device} has {readable_size(there)} of memory")
    lines += hint_threads(recipe, ranks)
    if ranks.world > 1:
        lines.append(_share_line(recipe, config, ranks))
    return lines


def _share_line(recipe: Recipe, config: ModelConfig, ranks: Ranks) -> str:
    """What one of several ranks will hold and send."""
    asked = recipe.train
    made = share(
        config,
        asked.parallel,
        ranks.world,
        rows_of_a_rank(recipe, ranks.world) // asked.accumulate,
        optimizer=recipe.optimizer.kind,
        width=2 if asked.dtype == "bfloat16" else 4,
        accumulate=asked.accumulate,
        recompute=asked.activation_checkpointing,
    )
    return (
        f"on each rank      {readable_size(made.total)}, and {readable_size(made.sent)} sent in each step, "
        f"with {ranks.world} ranks"
    )
