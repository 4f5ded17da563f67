"""What people reach for first is there: under its usual name, or with the name that is meant."""

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoModelForCausalLM

import pellucid
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.formats.pretrained import as_lazy
from pellucid.model import ELSEWHERE, VERBS, Model
from tests.formats.huggingface.models import random_model

BY_NAME = (
    *("calibrate", "chat", "evaluate", "explain", "explore", "generate", "look", "quantize", "save", "score"),
    *("trace", "verify"),
)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_verb_is_a_function_and_a_method_and_takes_a_name(name: str) -> None:
    function = getattr(pellucid, name)
    first = next(iter(inspect.signature(function).parameters.values()))
    assert first.name == "model" and "str" in str(first.annotation) and "PathLike" in str(first.annotation)
    assert callable(getattr(Model, name))
    assert name == "save" or getattr(Model, name) is function


def test_a_text_can_be_given_to_logits_and_loss_and_ids_to_decode() -> None:
    model = pellucid.load("abcd")
    assert model.logits("A B").equal(model.logits([0, 1]))
    assert model.logits(["A B", "C"]).shape == (2, 2, 4)
    assert model.decode(model.encode("A B")) == "A B"
    scored = model.score("A B C")
    assert model.loss("A B C") == pytest.approx(-scored.total / 2) and model.eos_ids == []
    with pytest.raises(TokenError, match="at least two tokens"):
        model.loss("A")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_name_of_another_library_says_what_it_is_called_here(name: str) -> None:
    meant = ELSEWHERE[name]
    with pytest.raises(AttributeError, match=re.escape(meant.split(",")[0])):
        getattr(pellucid.load("abcd"), name)
    assert hasattr(Model, meant.split(",")[0])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"has no 'nothing'$"):
        _ = pellucid.load("abcd").nothing
    assert not hasattr(pellucid.load("abcd"), "_repr_mimebundle_")


def test_verbs_take_a_name() -> None:
    assert pellucid.generate("abcd", "A B", max_new_tokens=2) == " B B"
    assert len(pellucid.score("abcd", "A B")) == 2
    assert "every number opens" in pellucid.explore("abcd", "A B").html
    with pytest.raises(UsageError, match="needs a prompt"):
        pellucid.explore("abcd")
    with pytest.raises(PellucidError, match="chat template"):
        pellucid.chat("abcd", "A B")


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_module_of_transformers_is_the_model_that_its_folder_is(
    family: str, dtype: str, tmp_path: Path
) -> None:
    _, write = random_model(family, 1)
    folder = write(tmp_path / "model", dtype=dtype)
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    ours, theirs = pellucid.load(folder), pellucid.load(module)
    assert ours.config == theirs.config
    for name, weight in as_lazy(ours.pretrained.weights).items():
        assert (weight == theirs.weights[name]).all(), name
    assert theirs.logits([1, 2, 3]).equal(ours.logits([1, 2, 3]))


def test_a_module_of_another_family_is_refused_with_the_known_ones() -> None:
    config = SimpleNamespace(to_dict=lambda: {"model_type": "t5"})
    with pytest.raises(UsageError, match=r"model_type must be .*llama.* got 't5'"):
        pellucid.load(SimpleNamespace(config=config, state_dict=dict))


def test_every_verb_of_the_table_is_a_method() -> None:
    assert {name for names in VERBS.values() for name in names} <= set(dir(Model))
