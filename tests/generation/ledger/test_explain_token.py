"""A token of a ledger is explained from its probability to the logits, with the run's own context."""

import math
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.base.errors import AddressError, FileError, UsageError
from pellucid.explanation.derive import Derivation
from pellucid.generation.ledger.explain_token import TokenNumber, explain_token
from pellucid.generation.ledger.ledger import Ledger
from pellucid.model import Model
from pellucid.verbs import explain
from tests.generation.ledger.test_ledger import generate


@pytest.fixture(scope="module")
def model() -> Model:
    return pellucid.load("abcd")


@pytest.fixture(scope="module")
def ledger(model: Model) -> Ledger:
    return generate(model, temperature=0.8, top_k=3, max_new_tokens=6, seed=4, n=2)


@pytest.mark.parametrize(("token", "choice"), [(1, 0), (4, 0), (-1, 1)])
def test_the_probability_of_a_token_is_the_recorded_one(
    ledger: Ledger, model: Model, token: int, choice: int
) -> None:
    found = explain_token(ledger, token, choice=choice, model=model).found
    entry = ledger.completions[choice].entries[token - 1 if token > 0 else token]
    assert isinstance(found, Derivation)
    assert found.value == pytest.approx(entry.probability, abs=1e-6)
    assert found.trace.tape["sampling.id"].item() == entry.id
    assert [operand.name for operand in found.operands] == ["sampling.probs", "sampling.id"]


def test_the_logit_is_followed_into_the_blocks(ledger: Ledger, model: Model) -> None:
    entry = ledger.completions[0].entries[2]
    found = explain_token(ledger, 3, f"logits[t=3,v={entry.id}]", model=model).found
    assert isinstance(found, Derivation)
    assert found.value == pytest.approx(entry.logit, abs=1e-5)
    assert found.operands[0].name.startswith("blocks.0")


def test_keys_say_when_they_were_computed(ledger: Ledger, model: Model) -> None:
    found = explain_token(ledger, 3, "blocks.0.attn.pattern[h=0,t=3]", model=model)
    text = "\n".join(found.to_lines())
    assert "s=0 A (prompt)" in text and "(token 2)" in text


def test_after_a_full_context_the_positions_are_those_that_were_read_again(model: Model) -> None:
    ledger = generate(model, temperature=1.0, max_new_tokens=20, context="crop", seed=1)
    [cut] = ledger.shortenings
    entry = ledger.completions[0].entries[cut.step + 1]
    found = explain_token(ledger, cut.step + 2, model=model).found
    assert isinstance(found, Derivation)
    labels = found.trace.labels["s"]
    assert len(labels) == cut.kept + 1
    assert labels[0].endswith(f"(read again before token {cut.step + 1})")
    assert labels[-1].endswith(f"(token {cut.step + 1})")
    assert found.value == pytest.approx(entry.probability, abs=1e-6)


def test_a_token_of_a_beam_is_explained_by_the_probability_of_its_node(model: Model) -> None:
    ledger = generate(model, beams=3, max_new_tokens=4)
    found = explain_token(ledger, -1, model=model).found
    assert isinstance(found, Derivation) and ledger.completions[0].node is not None
    node = ledger.beams[ledger.completions[0].node]
    assert found.value == pytest.approx(math.exp(node.logprob), abs=1e-6)


def test_the_constraint_is_in_the_state_that_the_token_had(model: Model) -> None:
    ledger = generate(model, temperature=1.0, max_new_tokens=5, regex="[AB ]*", seed=1)
    found = explain_token(ledger, 4, model=model).found
    assert isinstance(found, Derivation)
    assert found.value == pytest.approx(ledger.completions[0].entries[3].probability, abs=1e-6)


def test_a_ledger_file_is_explained_by_its_path(ledger: Ledger, tmp_path: Path) -> None:
    ledger.save(tmp_path / "a.json")
    found = explain(tmp_path / "a.json", token=2)
    assert isinstance(found, TokenNumber)
    assert found.to_data()["token"]["token"] == 2
    assert str(found).startswith("token 2 of choice 0")
    assert explain(tmp_path / "a.json") == ledger
    assert next(iter(ledger.to_lines())).startswith("model")


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "A B"},
        {"token": 1, "backward": True},
        {"at": "logits"},
        {"token": 7},
        {"token": 1, "choice": 2},
    ],
)
def test_what_does_not_go_with_a_ledger_is_refused(ledger: Ledger, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        explain(ledger, **given)


def test_other_inputs_are_refused_by_their_names(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        explain("abcd", "A B", token=1)
    with pytest.raises(AddressError):
        explain(ledger, token=1, at="sampling.heat")
    with pytest.raises(FileError):
        explain(tmp_path / "none.json", token=1)
