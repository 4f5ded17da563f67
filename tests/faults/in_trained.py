"""Faults of the config of a trained model: nothing is wrong with a number, and only a text shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
from pellucid.config import ModelConfig
from pellucid.model import Model
from pellucid.verification.checks.catalogue import CHECKS
from pellucid.verification.checks.check import Subject as Checked
from pellucid.verification.verdict import Finding
from tests.explanation.probe.trained import TEXT, train
from tests.faults.fault import Patch, fault
from tests.faults.subjects import SUBJECTS, Subject

LETTERS: dict[str, dict[str, Any]] = {
    "letters": {},
    "letters linear": {"positions": {"kind": "rope_linear", "factor": 4.0}},
    "letters window": {"mask": {"kind": "window", "size": 32}},
}


def _find(folder: Path, check: str | None) -> Iterator[Finding]:
    """Yields the findings of the checks that read a text of the model's own kind."""
    subject = Checked(pellucid.load(folder / "model"), evidence=TEXT)
    yield from (one.run(subject) for one in CHECKS if one.name == (check or "conventions"))


for _name, _choices in LETTERS.items():
    SUBJECTS[_name] = Subject(
        lambda folder, choices=_choices: Model(train(**choices)).save(folder / "model"),  # type: ignore[misc]
        _find,
    )


def _read_instead(patch: Patch, **choices: Any) -> None:
    """Has every config that is read from a file say something else."""
    right = ModelConfig.from_dict

    def wrong(given: dict[str, Any]) -> ModelConfig:
        return right({key: _merge(given.get(key), choices.get(key)) for key in {*given, *choices}})

    patch.setattr(ModelConfig, "from_dict", wrong)


def _merge(given: Any, change: Any) -> Any:
    if change is None:
        return given
    return given | change if isinstance(given, dict) and "kind" not in change else change


FAULTS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("base_of_a_config_ten_times_too_large",
     "`rope_theta` of a conversion is ten times what the model was trained with.",
     "letters", "convention: RoPE base: 10,000 for 100,000", {"positions": {"base": 100_000.0}}),
    ("base_of_a_config_four_times_too_small",
     "`rope_theta` of a conversion is a quarter of what the model was trained with.",
     "letters", "convention: RoPE base: 10,000 for 2,500", {"positions": {"base": 2_500.0}}),
    ("layout_of_a_config_exchanged",
     "The channels of a pair are neighbors in the config, and half a head apart in the weights.",
     "letters", "convention: RoPE layout: halves for pairs", {"positions": {"layout": "pairs"}}),
    ("eps_of_a_config_too_large", "The ε of the norms is 1.",
     "letters", "convention: norm eps…", {"norm": {"eps": 1.0}}),
    ("norm_of_a_config_exchanged", "The config says LayerNorm, and the weights are those of RMSNorm.",
     "letters", "convention: norm: rms_norm for layer_norm", {"norm": {"kind": "layer_norm"}}),
    ("scaling_of_a_config_absent", "`rope_scaling` was lost in a conversion.",
     "letters linear", "convention: RoPE scaling: rope_linear of 4 for rope",
     {"positions": {"kind": "rope"}}),
    ("scaling_of_a_config_half_as_large", "The factor of `rope_scaling` is 2 for 4.",
     "letters linear", "convention: RoPE scaling: rope_linear of 4 …", {"positions": {"factor": 2.0}}),
    ("scaling_of_a_config_that_was_not_trained",
     "`rope_scaling` stands in a config whose model was trained without.",
     "letters", "convention: RoPE scaling: rope for rope_linear of 4",
     {"positions": {"kind": "rope_linear", "factor": 4.0}}),
    ("window_of_a_config_absent", "`sliding_window` was lost in a conversion.",
     "letters window", "convention: window…", {"mask": {"kind": "causal"}}),
    ("window_of_a_config_half_as_large", "`sliding_window` is half of what the model was trained with.",
     "letters window", "convention: window: window of 32 …", {"mask": {"size": 16}}),
)  # fmt: skip
"""Each fault: its name, what is wrong, its subject, the place, and what every config says instead."""

for _fault, _about, _subject, _at, _changes in FAULTS:

    def _plant(patch: Patch, changes: dict[str, Any] = _changes) -> None:
        _read_instead(patch, **changes)

    _plant.__name__, _plant.__doc__ = _fault, _about
    fault("loading", subject=_subject, check="conventions", at=_at)(_plant)
