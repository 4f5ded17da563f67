"""Runs small enough for tests: a source of a few rows, and recipes for it."""

from typing import Any

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.rows import Batch, Rows
from pellucid.text.word_level import WordTokenizer
from pellucid.training.distributed.ranks import SINGLE_PROCESS, Ranks
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.run import Run
from pellucid.training.state import TrainState

WORDS = WordTokenizer(tuple("abcdefg"))
LENGTH = 6
TABLE: dict[str, Any] = {
    "out": "runs/test",
    "steps": 8,
    "data": {"path": "made up", "batch_size": 4},
    "model": {"context_length": LENGTH, "n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 10},
    "schedule": {"kind": "cosine", "warmup": 2},
    "train": {"dtype": "float64", "compile": False},
    "evaluation": {"every": 4, "sample": 3},
    "checkpoint": {"every": 4},
}


class MadeUp(Rows):
    """Rows drawn from the seed and their number; some targets are not counted, in some rows many."""

    length = LENGTH

    def __init__(self, seed: int = 0, is_packed: bool = False) -> None:
        self.seed, self.is_packed, self.at = seed, is_packed, 0

    def take(self, count: int, local: slice) -> Batch:
        numbers = range(self.at, self.at + count)[local]
        self.at += count
        made = [np.random.default_rng([self.seed, number]) for number in numbers]
        ids = np.stack([rng.integers(0, 7, LENGTH + 1) for rng in made])
        targets = ids[:, 1:].copy()
        for row, (number, rng) in enumerate(zip(numbers, made, strict=True)):
            targets[row, rng.random(LENGTH) < 0.3 * (number % 3)] = IGNORE_INDEX
        begins = [(np.arange(LENGTH) + number) % 3 == 0 for number in numbers]
        segments = np.cumsum(begins, 1).astype(np.int64) if self.is_packed else None
        return Batch(ids[:, :-1].astype(np.int64), targets.astype(np.int64), segments)

    def state(self) -> dict[str, int]:
        return {"at": self.at}

    def restore(self, state: dict[str, int]) -> None:
        self.at = state["at"]

    def identity(self) -> dict[str, int]:
        return {"seed": self.seed}


class MadeUpSource:
    """As much of a source as the loop asks for."""

    tokenizer, bytes_per_token, begin, end = WORDS, 1.0, 0, 1
    entropy_floor = bigram_baseline = None
    prompt = ""
    opening = None

    def __init__(self, seed: int = 0, is_packed: bool = False) -> None:
        self.train = MadeUp(seed, is_packed)
        held_out = MadeUp(seed + 1, is_packed).take(4, slice(0, 4))
        self.validation = [held_out]


def recipe(*changes: str) -> Recipe:
    return Recipe.from_dict(override(TABLE, changes))


def make_run(*changes: str, seed: int = 0, ranks: Ranks = SINGLE_PROCESS) -> Run:
    """Returns a run in memory."""
    own = recipe(*changes)
    source: Any = MadeUpSource(seed, own.data.rows == "packed")
    state = TrainState(own, source, ranks=ranks)
    state.loader.prefetch = 0  # no thread that a test would have to end
    return Run(state)
