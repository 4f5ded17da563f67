"""A trained model read by another convention than its own is caught by its own loss."""

from dataclasses import replace
from typing import Any

import pytest

from pellucid.formats.pretrained import Pretrained
from pellucid.model import Model
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.weights import measure_other_conventions
from pellucid.verification.verdict import Finding, Verdict, VerifyReport
from tests.explanation.probe.trained import TEXT, read_as, train
from tests.formats.gguf import random_models

ROPE = {"positions": {"kind": "rope", "base": 10_000.0}}


@pytest.fixture(autouse=True)
def _own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trained models know letters, and not our text."""
    monkeypatch.setattr("pellucid.explanation.probe.probe.choose_text", lambda tokenizer: TEXT)


def find(model: Pretrained, **choices: Any) -> Finding:
    return measure_other_conventions(Subject(Model(read_as(model, **choices))))


def test_a_trained_model_as_it_was_made_is_right_but_for_what_the_text_cannot_tell() -> None:
    found = find(train(**ROPE))
    assert found.verdict is Verdict.RIGHT and not found.verdict.is_failure
    assert "others are worse; cannot tell: " in found.measured and "nats would show" in found.measured
    assert "activation: geglu for swiglu" in found.undecided
    summary = VerifyReport((replace(found, name="conventions"),)).summary()
    assert f"cannot tell: {len(found.undecided)} of conventions" in summary
    assert summary.startswith("no bug found.")


def test_a_flipped_rope_layout_is_a_bug_that_names_the_other() -> None:
    found = find(train(**ROPE), positions={"kind": "rope", "layout": "pairs"})
    assert found.verdict is Verdict.BUG, found
    assert found.at == "convention: RoPE layout: halves for pairs"
    assert "the weights were most likely made for that one" in found.message


def test_a_wrong_base_is_a_bug_that_names_its_line_of_config_json() -> None:
    found = find(train(**ROPE), positions={"kind": "rope", "base": 100_000.0})
    assert (found.verdict, found.at) == (Verdict.BUG, "convention: RoPE base: 10,000 for 100,000")
    assert "(in config.json: rope_theta)" in found.message


def test_gains_stored_less_one_are_a_bug_that_names_how_to_read_them() -> None:
    """As Gemma's files have them."""
    model = train(**ROPE)
    weights = {
        name: value - 1 if name.endswith("norm.weight") else value for name, value in model.weights.items()
    }
    found = find(replace(model, weights=weights))
    assert (found.verdict, found.at) == (Verdict.BUG, "convention: norm gain: 1 + γ"), found


def test_a_model_that_makes_no_sense_in_any_reading_is_not_blamed() -> None:
    found = find(random_models.model(random_models.LLAMA))
    assert found.verdict is Verdict.UNKNOWN and not found.undecided
    assert found.measured.startswith("it does not predict this text")
    assert "cannot tell: conventions" in VerifyReport((replace(found, name="conventions"),)).summary()


def test_a_model_without_a_tokenizer_is_skipped() -> None:
    assert find(replace(train(**ROPE), tokenizer=None)).verdict is Verdict.SKIPPED
