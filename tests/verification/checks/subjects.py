"""Random models that are verified, and the checks by name."""

import os
from typing import Any

import pytest

from pellucid.model import Model
from pellucid.verification.checks.catalogue import CHECKS
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine import native, schedule
from pellucid.verification.verdict import Finding
from tests.formats.gguf import random_models
from tests.rotation import ROTATION


def find_check(name: str) -> Check[Subject]:
    return next(check for check in CHECKS if check.name == name)


def make_subject(
    gain: float = 1.0, dtype: str = "float32", has_tokenizer: bool = True, **changes: Any
) -> Subject:
    """Returns a random Llama with other choices, its weights multiplied by `gain`."""
    shape = random_models.LLAMA | changes
    weights = {name: gain * array for name, array in random_models.model(shape).weights.items()}
    more: dict[str, Any] = {} if has_tokenizer else {"tokenizer": None}
    return Subject(Model(random_models.model(shape, weights=weights, **more), dtype=dtype))


def measure(check: str, **changes: Any) -> Finding:
    """Returns what a check finds of such a model."""
    return find_check(check).measure(make_subject(**changes))


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Makes the random schedules a round long, and runs the compiled decoder on one thread and on two, unless
    this is `make torture`. Planted faults are looked for, and `abcd` is judged, with nothing left out."""
    if os.environ[ROTATION] == "all":
        return
    patch.setattr(schedule, "ROUNDS", 1)
    patch.setattr(native, "list_threads", lambda: (1, 2))
