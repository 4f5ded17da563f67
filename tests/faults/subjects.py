"""What faults are planted in: tiny models and runs as people have them, by name.

A subject is prepared before the fault is planted, in a folder that all faults of a process share, and opened
after it. A run is also trained after it: the defect would have been there when it was trained.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pellucid
from pellucid.model import Model
from pellucid.verification.checks.catalogue import CHECKS
from pellucid.verification.checks.check import Subject as Checked
from pellucid.verification.verdict import Finding
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import FAMILIES
from tests.model import folders


@dataclass(frozen=True)
class Subject:
    prepare: Callable[[Path], None]
    """Writes the subject's files into a new folder, without the fault."""
    findings: Callable[[Path, str | None], Iterator[Finding]]
    """Opens them and yields the findings of the check of that name, or of all checks."""


def verify_model(path: Path, check: str | None, weights: str | None = None) -> Iterator[Finding]:
    """Yields the findings of `verify` on a model whose weights are held so, in the order of its checks; all
    but `compiled`, which takes a minute, unless it is asked for."""
    yield from verify_loaded(pellucid.load(path, weights=weights), check)


def verify_loaded(model: Model, check: str | None) -> Iterator[Finding]:
    subject = Checked(model)
    for known in CHECKS:
        if known.name == check or (check is None and known.name != "compiled"):
            yield known.run(subject)


def _model(name: str, write: Callable[[Path], object]) -> Subject:
    """Returns the subject of a model that `write` writes under this name in the folder."""
    return Subject(
        lambda folder: void(write(folder / name)), lambda folder, check: verify_model(folder / name, check)
    )


def void(_: object) -> None:
    """Discards what a writer returns."""


LLAMA = random_models.LLAMA
SHAPES: dict[str, dict[str, Any]] = {
    "ours": LLAMA,
    "linear": LLAMA | {"attention": "linear_elu", "positions": "none"},
    "capped": LLAMA | {"score_cap": {"kind": "tanh", "limit": 5.0}},
    "window": LLAMA | {"mask": {"kind": "window", "size": 9}},
    "sinks": LLAMA | {"mask": {"kind": "sinks", "tokens": 2, "size": 7}},
    "yarn": LLAMA | {"positions": random_models.YARN},
    "sinusoidal": LLAMA | {"positions": "sinusoidal"},
    "t5": LLAMA | {"positions": "t5"},
    "qk_norm": random_models.QWEN3 | {"positions": "none"},
    "prefix": LLAMA | {"mask": {"kind": "prefix", "length": 4}},
    "wide": LLAMA | {"d_model": 128, "d_ff": 384, "n_layer": 1, "context_length": 256},
    "long": LLAMA | {"context_length": 256, "n_layer": 1},
    "far": LLAMA | {"context_length": 2048, "n_layer": 1},
}
"""Models in our own format, whose choices no family of Hugging Face has, or whose sizes a fault needs."""
SUBJECTS: dict[str, Subject] = (
    {family: _model("model", functools.partial(folders.huggingface, family=family)) for family in FAMILIES}
    | {name: _model("model", functools.partial(folders.ours, shape=shape)) for name, shape in SHAPES.items()}
    | {"gguf": _model("model.gguf", folders.gguf_file)}
)
"""Every subject by its name; files that plant faults add their own."""
