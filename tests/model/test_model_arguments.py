"""A wrong argument from Python is refused with its parameter's name, before a weight is read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import ConfigError, FileError, ResourceError, TokenError, UsageError
from pellucid.config import preset
from pellucid.formats.pretrained import LazyTensor, LazyWeights
from pellucid.model import Model
from tests.formats.gguf import random_models


def unread() -> Model:
    """A model whose weights nobody may read."""

    def fail() -> Any:
        raise AssertionError("a weight was read")

    config = random_models.model(random_models.LLAMA).config
    weights = LazyWeights({name: LazyTensor(shape, fail) for name, shape in config.parameters().items()})
    return Model(random_models.model(random_models.LLAMA, weights=weights))


@pytest.mark.parametrize(
    ("parameter", "call"),
    [
        *[
            ("max_new_tokens", lambda model, wrong=wrong: model.generate("a", max_new_tokens=wrong))
            for wrong in (1.5, "5", True, -1, 10**30)
        ],
        ("max_new_tokens", lambda model: model.generate_ids("a", "5")),
        ("max_new_tokens", lambda model: model.stream("a", "5")),
        ("temperature", lambda model: model.generate("a", temperature="a")),
        ("temperature", lambda model: model.stream("a", temperature=-1)),
        ("seed", lambda model: model.generate("a", seed="x")),
        ("seed", lambda model: model.generate(["a", "b"], seed=[1, "x"])),
        ("parse_special", lambda model: model.generate("a", parse_special=1)),
        ("prompt", lambda model: model.generate(5)),
        ("prompt", lambda model: model.generate(None)),
        ("prompt", lambda model: model.generate(b"the cat")),
        ("prompt", lambda model: model.stream(5)),
        ("prompt", lambda model: model.generate_ids({1, 2})),
        ("prompt", lambda model: model.score(None)),
        ("prompt", lambda model: model.trace(5)),
        ("prompt", lambda model: model.encode({"a": 1})),
        ("prompt", lambda model: model.logits(b"x")),
        ("prompt", lambda model: model.logits(None)),
        ("prompt", lambda model: model.logits(7)),
        ("target", lambda model: model.trace("a", target=5)),
        ("target", lambda model: model.trace("a", target=b"x")),
        ("steps", lambda model: model.trace("a", target="b", update="sgd", steps=-1)),
        ("steps", lambda model: model.trace("a", target="b", update="sgd", steps=10**9)),
        ("lr", lambda model: model.trace("a", target="b", update="sgd", lr="a")),
        ("lr", lambda model: model.trace("a", target="b", update="sgd", lr=float("nan"))),
        ("beta", lambda model: model.trace("a", target="b", update="momentum", beta="a")),
        ("a setting of adamw", lambda model: model.trace("a", target="b", update="adamw", betas=0.9)),
        ("beta2", lambda model: model.trace("a", target="b", update="adamw", settings={"beta2": "x"})),
        ("smoothing", lambda model: model.trace("a", target="b", smoothing=2)),
        ("clip", lambda model: model.trace("a", target="b", update="adamw", clip=[1])),
        ("stop", lambda model: model.generate_ids("a", stop=5)),
        ("stop", lambda model: model.generate_ids("a", stop=["x", 1])),
        ("stop_ids", lambda model: model.generate_ids("a", stop_ids="x")),
        ("sampling", lambda model: model.generate("a", sampling={"top_k": 5})),
        ("preset", lambda model: model.generate("a", preset="cretive")),
        ("a key of the sampling settings", lambda model: model.generate("a", topp=0.5)),
        ("lookup", lambda model: model.stream("a", lookup="yes")),
        ("draft_tokens", lambda model: model.stream("a", draft_tokens=0)),
        ("return_ledger", lambda model: model.generate("a", return_ledger=1)),
        ("id", lambda model: model.token(-1)),
        ("only", lambda model: model.trace("a", target="b", update="sgd", only=5)),
        ("update", lambda model: model.trace("a", target="b", update=5)),
        ("path", lambda model: model.trace("a", path="egaer")),
        ("path", lambda model: model.trace("a", path=None)),
        ("backward", lambda model: model.trace("a", target="b", backward="no")),
        ("at", lambda model: model.explain("a", at=5)),
        ("depth", lambda model: model.explain("a", at="logits", depth="2")),
        ("depth", lambda model: model.explain("a", at="logits", depth=10**9)),
        ("top", lambda model: model.explain("a", at="logits", top=0)),
        ("lines", lambda model: model.explain("a", at="logits", lines=-1)),
        ("layout", lambda model: model.in_layout("thirds")),
        ("folder", lambda model: model.save(None)),
        ("folder", lambda model: model.save(5, force=True)),
        ("folder", lambda model: model.save_pretrained("")),
        ("force", lambda model: model.save("x", force="no")),
    ],
)
def test_a_wrong_argument_is_refused_by_name_before_anything_runs(parameter: str, call: Any) -> None:
    with pytest.raises(UsageError, match=rf"^{parameter}(\[\d\])? must be "):
        call(unread())


@pytest.mark.parametrize("name", [None, 5, b"abcd", ["abcd"], "a\0b", True, object()])
def test_what_is_not_a_name_of_a_model_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match=r"^name must be "):
        pellucid.load(name)


@pytest.mark.parametrize("device", [None, 0, 1.5, "toaster", "meta", "cuda:99", ["cpu"], "cpu:x", ""])
def test_a_device_that_cannot_be_used_is_refused_when_it_is_asked_for(device: Any) -> None:
    with pytest.raises(UsageError, match="device") as refused:
        pellucid.load("abcd", device=device)
    assert not isinstance(device, str) or f"'{device}'" in str(refused.value)


def test_a_device_or_a_type_of_torch_s_own_is_taken() -> None:
    model = pellucid.load("abcd", device=torch.device("cpu"), dtype=torch.float64)  # type: ignore[arg-type]
    assert (model.device, model.dtype) == ("cpu", "float64")
    for dtype in (torch.bfloat16, "torch.bfloat16", "bfloat16"):
        assert pellucid.load("abcd", dtype=dtype).dtype == "bfloat16"  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [None, 5, "float8", "int8", torch.int8, float])
def test_a_dtype_that_is_none_is_reported_at_once(dtype: Any) -> None:
    with pytest.raises(ConfigError, match=r"dtype.*float16") as refused:
        pellucid.load("abcd", dtype=dtype)
    assert "int8" not in str(dtype) or "int8" in str(refused.value)


def test_numbers_of_other_libraries_are_numbers() -> None:
    model = pellucid.load("abcd")
    wanted = model.generate("A", 3, 1.0, 5)
    assert model.generate("A", np.int64(3), np.float32(1), np.int32(5)) == wanted  # type: ignore[arg-type]
    assert model.generate("A", torch.tensor(3), 1, 5) == wanted  # type: ignore[arg-type]


def test_what_does_not_fit_the_context_is_refused_with_what_would() -> None:
    model = pellucid.load("abcd")
    for write in (model.generate, model.stream, model.generate_ids):
        with pytest.raises(TokenError, match="at most 15 new tokens"):
            write("A", 50)
    assert len(model.generate("A").split()) == 15  # as many as fit
    assert len(model.generate("A", 50, context="crop").split()) == 50
    assert "".join(model.stream("A", 50, context="crop")) == model.generate("A", 50, context="crop")


# ---- a new model


def test_a_new_model_is_a_seed_s_and_can_be_run_traced_and_saved(tmp_path: Path) -> None:
    abcd = pellucid.load("abcd")
    one, same, other = (
        Model.from_config(abcd.config, tokenizer=abcd.tokenizer, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(one.logits([0, 1]), same.logits([0, 1]))
    assert not torch.equal(one.logits([0, 1]), other.logits([0, 1]))
    assert isinstance(one.generate("A", 3), str) and "probs" in str(one.explain("A B", at="probs[t=1,v=2]"))
    one.save(tmp_path / "new")
    assert torch.equal(pellucid.load(tmp_path / "new").logits([0, 1]), one.logits([0, 1]))


def test_a_new_model_may_be_asked_for_by_a_preset_and_an_initialization() -> None:
    zero = Model.from_config("tiny", initialization="zero_output", dtype="float64")
    assert zero.config == preset("tiny") and zero.dtype == "float64"
    assert not zero.weights["blocks.0.attn.o_proj.weight"].any()
    assert zero.pretrained.tokenizer is None and zero.generate([0], 2)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"config": None}, UsageError, "config must be"),
        ({"config": "abdc"}, ConfigError, "abdc"),
        ({"config": "no/such/folder"}, FileError, "no/such/folder"),
        ({"seed": "x"}, UsageError, "seed must be"),
        ({"tokenizer": "gpt2"}, UsageError, "tokenizer must be"),
        ({"tokenizer": random_models.tokenizer()}, ConfigError, "vocab_size=267"),
        ({"initialization": "xaviar"}, ConfigError, "'xavier"),
        ({"device": "toaster"}, UsageError, "toaster"),
    ],
)
def test_what_makes_no_new_model_is_refused(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Model.from_config(**({"config": "abcd"} | given))


def test_a_config_of_more_parameters_than_the_memory_holds_is_refused() -> None:
    config = replace(preset("gpt2"), context_length=2**31 - 1)  # a learned row for each position
    with pytest.raises(ResourceError, match="parameters"):
        Model.from_config(config)
