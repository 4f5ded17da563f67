"""A ledger prints, saves and replays itself, and names its model, which gives every number again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import pellucid
from pellucid.generation.ledger.ledger import (
    Ledger,
    compute_fingerprint,
    make_ledger,
    open_model_of,
    replay_with,
)
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import Model
from tests.generation.small_ledgers import make_small_ledger


def generate(model: Model, prompt: str = "A B", **settings: object) -> Ledger:
    engine = Engine(model.module, model.tokenizer, stop_ids=model.eos_ids)
    request = Request(tuple(model.encode(prompt)), Sampling(**settings), ledger=True)  # type: ignore[arg-type]
    return make_ledger(model, request, engine.add(request).result(), sources={"temperature": "given"})


@pytest.fixture(scope="module")
def model() -> Model:
    return pellucid.load("abcd")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 6},
        {"temperature": 1.0, "max_new_tokens": 6},
        {"temperature": 0.7, "top_k": 2, "top_p": 0.8, "max_new_tokens": 5, "n": 3, "seed": 5},
        {"temperature": 1.0, "max_new_tokens": 40, "context": "crop"},
        {"temperature": 1.0, "max_new_tokens": 40, "context": "roll", "keep": 2},
        {"temperature": 1.0, "max_new_tokens": 6, "repetition_penalty": 1.3, "logit_bias": {0: -5.0}},
        {"temperature": 1.0, "max_new_tokens": 5, "forced_tokens": [2, 3], "banned_tokens": [0]},
        {"temperature": 1.0, "max_new_tokens": 6, "regex": "[AB ]*"},
        {"beams": 4, "n": 2, "max_new_tokens": 6, "length_penalty": 0.6, "stop_ids": [3]},
    ],
    ids=["greedy", "drawn", "three", "crop", "roll", "penalties", "forced", "regex", "beams"],
)
def test_a_text_replays_bit_for_bit_from_its_ledger_and_by_its_model(
    model: Model, settings: dict[str, object], tmp_path: Path
) -> None:
    ledger = generate(model, **settings)
    assert bool(ledger.beams) or all(len(one.entries) == len(one.ids) for one in ledger.completions)
    ledger.save(tmp_path / "a.json")
    ledger = Ledger.read(tmp_path / "a.json")
    for done in (ledger.replay(), replay_with(ledger, model)):
        assert not done.mismatches
        assert done.exact == done.numbers
    assert (settings.get("context") is not None) == bool(ledger.shortenings)


def test_the_seed_is_recorded_where_none_was_given(model: Model) -> None:
    ledger = generate(model, temperature=1.0, max_new_tokens=3)
    assert ledger.sampling.seed is None
    assert ledger.completions[0].seed == ledger.seed


def test_the_chain_is_in_the_order_in_which_it_ran(model: Model) -> None:
    ledger = generate(model, top_p=0.9, temperature=0.5, top_k=3, max_new_tokens=1)
    assert [one.kind for one in ledger.chain] == ["temperature", "top_k", "top_p"]
    assert ledger.chain[1].settings == {"top_k": 3}


def test_a_trained_copy_has_another_fingerprint_and_does_not_replay() -> None:
    model = pellucid.load("abcd")
    ledger = generate(model, temperature=1.0, max_new_tokens=4, seed=1)
    before = compute_fingerprint(model)
    assert ledger.model.fingerprint == before == compute_fingerprint(open_model_of(ledger))
    with torch.no_grad():
        model.module.get_parameter("unembed.weight").mul_(1.5)
    assert compute_fingerprint(model) != before
    assert next(one.what for one in replay_with(ledger, model).mismatches) == "fingerprint"


def test_every_token_that_a_ledger_mentions_has_a_text(model: Model) -> None:
    ledger = generate(model, temperature=1.0, max_new_tokens=2)
    assert ledger.texts == {0: "A", 1: "B", 2: "C", 3: "D"}


def test_on_another_machine_the_tokens_are_the_same_and_the_numbers_close(model: Model) -> None:
    ledger = generate(model, temperature=1.0, max_new_tokens=4, seed=2)
    first = ledger.completions[0]
    nearly = replace(first.entries[1], entropy=first.entries[1].entropy + 1e-7)
    moved = replace(
        ledger,
        versions=replace(ledger.versions, machine="another"),
        completions=(replace(first, entries=(first.entries[0], nearly, *first.entries[2:])),),
    )
    # the vocabulary is listed whole, so the file alone says more about entropy than the model does
    assert not [one for one in replay_with(moved, model).mismatches if one.where.startswith("the model")]
    assert replay_with(replace(moved, versions=ledger.versions), model).mismatches


def test_a_replay_computes_with_the_threads_of_the_ledger() -> None:
    import torch

    model = pellucid.load("abcd")
    before, seen = torch.get_num_threads(), list[int]()
    _, ledger = model.generate("A B", max_new_tokens=2, return_ledger=True)
    forward = model.module.forward_packed

    def watch(*given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return forward(*given)

    model.module.forward_packed = watch  # type: ignore[method-assign]
    versions = replace(ledger.versions, machine="x86_64 AVX2, 3 threads")
    replay_with(replace(ledger, versions=versions), model)
    assert set(seen) == {3} and torch.get_num_threads() == before


def test_a_ledger_is_printed_as_its_table_and_shown_as_one_line() -> None:
    ledger = make_small_ledger()
    assert "mean surprisal" in str(ledger)
    assert repr(ledger) == "<Ledger of 6 tokens: small, float32 on cpu>"


def test_a_saved_ledger_is_read_and_replayed(tmp_path: Path) -> None:
    ledger = make_small_ledger()
    ledger.save(tmp_path / "a.json")
    found = Ledger.read(tmp_path / "a.json")
    assert found == ledger
    assert not found.replay().mismatches
    assert ledger.why(2) == found.why(2)
