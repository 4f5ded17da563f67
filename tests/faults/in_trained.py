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


@fault("loading", subject="letters", check="conventions", at="convention: RoPE base: 10,000 for 100,000")
def base_of_a_config_ten_times_too_large(patch: Patch) -> None:
    """`rope_theta` of a conversion is ten times what the model was trained with."""
    _read_instead(patch, positions={"base": 100_000.0})


@fault("loading", subject="letters", check="conventions", at="convention: RoPE base: 10,000 for 2,500")
def base_of_a_config_four_times_too_small(patch: Patch) -> None:
    """`rope_theta` of a conversion is a quarter of what the model was trained with."""
    _read_instead(patch, positions={"base": 2_500.0})


@fault("loading", subject="letters", check="conventions", at="convention: RoPE layout: halves for pairs")
def layout_of_a_config_exchanged(patch: Patch) -> None:
    """The channels of a pair are neighbors in the config, and half a head apart in the weights."""
    _read_instead(patch, positions={"layout": "pairs"})


@fault("loading", subject="letters", check="conventions", at="convention: norm eps…")
def eps_of_a_config_too_large(patch: Patch) -> None:
    """The ε of the norms is 1."""
    _read_instead(patch, norm={"eps": 1.0})


@fault("loading", subject="letters", check="conventions", at="convention: norm: rms_norm for layer_norm")
def norm_of_a_config_exchanged(patch: Patch) -> None:
    """The config says LayerNorm, and the weights are those of RMSNorm."""
    _read_instead(patch, norm={"kind": "layer_norm"})


@fault(
    "loading",
    subject="letters linear",
    check="conventions",
    at="convention: RoPE scaling: rope_linear of 4 for rope",
)
def scaling_of_a_config_absent(patch: Patch) -> None:
    """`rope_scaling` was lost in a conversion."""
    _read_instead(patch, positions={"kind": "rope"})


@fault(
    "loading",
    subject="letters linear",
    check="conventions",
    at="convention: RoPE scaling: rope_linear of 4 …",
)
def scaling_of_a_config_half_as_large(patch: Patch) -> None:
    """The factor of `rope_scaling` is 2 for 4."""
    _read_instead(patch, positions={"factor": 2.0})


@fault(
    "loading",
    subject="letters",
    check="conventions",
    at="convention: RoPE scaling: rope for rope_linear of 4",
)
def scaling_of_a_config_that_was_not_trained(patch: Patch) -> None:
    """`rope_scaling` stands in a config whose model was trained without."""
    _read_instead(patch, positions={"kind": "rope_linear", "factor": 4.0})


@fault("loading", subject="letters window", check="conventions", at="convention: window…")
def window_of_a_config_absent(patch: Patch) -> None:
    """`sliding_window` was lost in a conversion."""
    _read_instead(patch, mask={"kind": "causal"})


@fault("loading", subject="letters window", check="conventions", at="convention: window: window of 32 …")
def window_of_a_config_half_as_large(patch: Patch) -> None:
    """`sliding_window` is half of what the model was trained with."""
    _read_instead(patch, mask={"size": 16})
