"""A trained model read by another convention than its own is caught by its own loss."""

from dataclasses import replace

from pellucid.checks.check import Subject
from pellucid.checks.files import conventions
from pellucid.config import ModelConfig
from pellucid.judge.verdict import Finding
from pellucid.parts.positions.rope import Rope
from pellucid.pretrained import Pretrained
from pellucid.workbench import Model
from tests.checks.trained import CONFIG, trained
from tests.interop.gguf import random_models


def read_as(trained: Pretrained, config: ModelConfig) -> Finding:
    return conventions.measure_other_conventions(Subject(Model(replace(trained, config=config))))


def test_a_trained_model_as_it_was_made_is_not_a_bug() -> None:
    found = read_as(trained(), CONFIG)
    assert found.verdict in ("equal", "noise"), found
    assert found.measured.startswith("loss 0.") or found.measured.startswith("loss 1.")


def test_a_flipped_rope_layout_is_a_bug_that_names_the_other() -> None:
    found = read_as(trained(), replace(CONFIG, positions=Rope(100.0, "pairs")))
    assert found.verdict == "BUG", found
    assert found.at == "convention: RoPE layout: halves for pairs"
    assert "the weights were most likely made for that one" in found.message


def test_gains_stored_less_one_are_a_bug_that_names_how_to_read_them() -> None:
    """As Gemma's files have them."""
    weights = {
        name: value - 1 if name.endswith("norm.weight") else value
        for name, value in trained().weights.items()
    }
    found = read_as(replace(trained(), weights=weights), CONFIG)
    assert (found.verdict, found.at) == ("BUG", "convention: norm gain read as 1 + γ"), found


def test_a_model_that_makes_no_sense_in_any_reading_is_not_blamed() -> None:
    found = conventions.measure_other_conventions(Subject(Model(random_models.model(random_models.LLAMA))))
    assert found.verdict == "skipped"
    assert found.measured.startswith("it does not predict English")
