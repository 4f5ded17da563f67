"""Adapters: the model with them is the specification's with merged weights, and nothing else learns."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import pellucid
from pellucid.base.errors import ConfigError, FileError
from pellucid.engine.lora import LoraLinear, MergedWeights
from pellucid.formats import model_folder
from pellucid.formats.adapter import peft_names
from pellucid.reference.training import forward
from pellucid.training.events import Stepped
from pellucid.training.run import Run
from pellucid.training.start import resolve_recipe
from pellucid.training.state import TrainState
from pellucid.training.step import forward_backward
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from tests.training import small_models
from tests.training.small_models import started
from tests.training.small_run_folders import go_on
from tests.training.small_runs import MadeUp, MadeUpSource, recipe

RANK = ("lora.rank=3", "lora.alpha=6")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models.folder(tmp_path_factory.mktemp("tiny") / "start")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my.txt"
    path.write_text(small_models.TEXT)
    return path


def make_run(start: Path, *changes: str) -> Run:
    """A run of the made-up rows, from a model with some more tokens than they have."""
    asked, found = resolve_recipe(recipe(f"start={start}", "model={context_length=6}", *RANK, *changes))
    state = TrainState(asked, MadeUpSource(), found)  # type: ignore[arg-type]
    state.loader.prefetch = 0
    return Run(state)


def shaken(made: Run) -> Run:
    """With adapters that do something: B is no longer zero."""
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in made.state.weights.trainable.values():
            weight.copy_(torch.randn(weight.shape, generator=rng) * 0.3)
        made.state.weights.copy_to_model()
    return made


def test_an_adapted_model_begins_as_the_model_that_it_adapts(start: Path) -> None:
    made, ids = make_run(start), torch.arange(6)[None]
    plain = pellucid.load(start, dtype="float64").module
    with torch.no_grad():
        assert torch.equal(made.state.model(ids), plain(ids))
    for name, weight in made.state.weights.trainable.items():
        assert torch.equal(weight, torch.zeros_like(weight)) == name.endswith(".lora_b"), name


@pytest.mark.parametrize("frozen", ["lora_a", "lora_b"])
def test_a_half_that_is_frozen_in_bfloat16_is_merged_with_one_that_has_a_master(
    frozen: str, start: Path
) -> None:
    made = make_run(start, "train.weights=bfloat16", "train.dtype=bfloat16", f'train.freeze="*.{frozen}"')
    made.step()
    assert {weight.dtype for weight in made.state.snapshot().weights.values()} >= {torch.float32}


def test_loss_and_derivatives_are_the_specification_s_with_merged_weights(start: Path) -> None:
    """With W' = W + s B A: dB = s dW' Aᵀ and dA = s Bᵀ dW'."""
    made = shaken(make_run(start))
    batch = MadeUp().take(4, slice(0, 4))
    loss = float(forward_backward(made.state, made.state.prefetcher.to_device(batch))[0])
    weights = MergedWeights(dict(made.state.model.named_parameters()), scale=2.0)
    tape = forward(
        made.state.model.config, {n: w.numpy() for n, w in weights.items()}, batch.ids, batch.targets
    )
    tape.backward(tape.ref("loss"))
    assert loss == pytest.approx(float(tape["loss"]), rel=1e-12)
    paths = [name for name, module in made.state.model.named_modules() if isinstance(module, LoraLinear)]
    assert len(paths) == 2 * 7
    for path in paths:
        slope = tape[f"d.{path}.weight"]
        a, b = (made.state.weights.named[f"{path}.lora_{x}"] for x in "ab")
        wanted = {"a": 2 * b.detach().numpy().T @ slope, "b": 2 * slope @ a.detach().numpy().T}
        found = {"a": a.grad.numpy(), "b": b.grad.numpy()}  # type: ignore[union-attr]
        assert find_first_mismatch(found, wanted, BETWEEN_ENGINES) is None, path


def test_only_adapters_learn_and_the_rest_stays_to_the_last_bit(start: Path) -> None:
    made = make_run(start)
    before = {name: weight.detach().clone() for name, weight in made.state.weights.named.items()}
    for _ in range(2):
        assert isinstance(made.step(), Stepped)
    for name, weight in made.state.weights.named.items():
        assert torch.equal(weight, before[name]) != name.endswith((".lora_a", ".lora_b")), name


def test_patterns_choose_the_projections_and_which_of_their_adapters_learn(start: Path) -> None:
    made = make_run(start, 'lora.targets=["*.q_proj", "*.v_proj"]', "train.freeze=*.lora_a")
    assert list(made.state.weights.trainable) == [
        f"blocks.{layer}.attn.{p}_proj.lora_b" for layer in (0, 1) for p in "qv"
    ]
    with pytest.raises(ConfigError, match=r"lora\.targets='blocks\.\*\.w_proj'"):
        make_run(start, "lora.targets=blocks.*.w_proj")
    with pytest.raises(ConfigError, match=r"train\.only"):
        make_run(start, "train.only=embed.weight")


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("lora.dropout=0.3", "train.accumulate=2", "train.ema=0.9"),
        ("train.dtype=bfloat16", "model.dropout=bernoulli"),
        (
            "train.dtype=bfloat16",
            "train.weights=bfloat16",
            "train.ema=0.9",
            "train.activation_checkpointing=true",
        ),
        ("optimizer.kind=muon",),
    ],
    ids=["plain", "dropout, parts, mean", "autocast", "narrow", "muon"],
)
def test_k_steps_and_k_more_equal_2k_bit_for_bit(changes: tuple[str, ...], start: Path) -> None:
    straight = make_run(start, *changes)
    message: list[Any] = [straight.step() for _ in range(4)]
    first = make_run(start, *changes)
    again: list[Any] = [first.step() for _ in range(2)]
    kept = first.state.snapshot()
    kept = kept._replace(
        trainable={name: weight.clone() for name, weight in kept.trainable.items()},
        optimizer={name: tensor.clone() for name, tensor in kept.optimizer.items()},
        averaged_adapters={name: tensor.clone() for name, tensor in kept.averaged_adapters.items()},
    )
    first.step()  # whatever happens to the first run afterwards
    second = make_run(start, *changes)
    second.state.restore(kept)
    again += [second.step() for _ in range(2)]
    assert [(event.loss, event.grad_norm) for event in message] == [
        (event.loss, event.grad_norm) for event in again
    ]
    for name, weight in straight.state.weights.named.items():
        assert torch.equal(weight, second.state.weights.named[name]), name
    for name, mean in straight.state.average.mean.items():
        assert torch.equal(mean, second.state.average.mean[name]), name


def test_narrow_weights_have_masters_for_the_adapters_alone(start: Path) -> None:
    made = make_run(start, "train.dtype=bfloat16", "train.weights=bfloat16")
    types = {name: weight.dtype for name, weight in made.state.weights.named.items()}
    assert {dtype for name, dtype in types.items() if "lora" in name} == {torch.float32}
    assert {dtype for name, dtype in types.items() if "lora" not in name} == {torch.bfloat16}


def test_the_saved_model_is_the_merged_one_and_is_what_evaluations_saw(
    tmp_path: Path, start: Path, text: Path
) -> None:
    """With a mean of the adapters, that is the mean."""
    out = tmp_path / "out"
    run = started(small_models.table(out, start, text), *RANK, "train.ema=0.5", "optimizer.lr=0.05")
    model = pellucid.load(out / "model").module
    trained, ids = run.state.model.eval(), torch.arange(8)[None]
    with torch.no_grad(), run.state.average.use():
        torch.testing.assert_close(model(ids), trained(ids), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert not torch.allclose(model(ids), trained(ids), atol=1e-4)
    before = model_folder.read(start).weights
    changed = {
        n for n, w in model_folder.read(out / "model").weights.items() if not np.array_equal(w, before[n])
    }
    assert changed == {n for n in before if n.endswith("_proj.weight")}


def test_a_run_goes_on_bit_for_bit_and_only_beside_the_weights_it_began_with(
    tmp_path: Path,
    text: Path,
) -> None:
    start = small_models.folder(tmp_path / "start")
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    asked = {"lora": {"rank": 2, "dropout": 0.1}}
    started(small_models.table(straight, start, text) | asked)
    started(small_models.table(cut, start, text) | asked, stop=2)
    start.rename(tmp_path / "away")
    with pytest.raises(FileError, match="no such file or folder"):
        go_on(cut)
    small_models.folder(start, small_models.LLAMA | {"d_ff": 23})
    with pytest.raises(FileError, match="adapters"):
        go_on(cut)
    shutil.rmtree(start)
    (tmp_path / "away").rename(start)
    go_on(cut)
    for name in ("model/model.safetensors", "adapter/adapter_model.safetensors"):
        assert (straight / name).read_bytes() == (cut / name).read_bytes()


def test_an_adapter_has_peft_s_layout_and_means_the_saved_model(
    tmp_path: Path, start: Path, text: Path
) -> None:
    out = tmp_path / "out"
    started(small_models.table(out, start, text), *RANK, "optimizer.lr=0.05")
    about = json.loads((out / "adapter" / "adapter_config.json").read_text())
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 3, "lora_alpha": 6.0, "bias": "none"}
    assert about.items() >= wanted.items() and about["base_model_name_or_path"] == str(start)
    names = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert about["target_modules"] == names
    tensors = load_file(out / "adapter" / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 7
    a, b = (tensors[f"base_model.model.model.layers.1.mlp.up_proj.lora_{x}.weight"] for x in "AB")
    assert a.shape == (3, 16) and b.shape == (24, 3)
    before, after = (
        model_folder.read(f).weights["blocks.1.mlp.up_proj.weight"] for f in (start, out / "model")
    )
    np.testing.assert_allclose(after, before + 2 * b @ a, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
@pytest.mark.parametrize("targets", ['["blocks.*_proj"]', '["*.q_proj", "blocks.1.mlp.up_proj"]'])
def test_peft_computes_the_same_with_our_adapter(
    layout: str,
    targets: str,
    tmp_path: Path,
    text: Path,
) -> None:
    """Our base exported for `transformers`, with our adapter put on by `peft`; also where the rows of queries
    and keys lie in another order here than there."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    from pellucid.formats import huggingface

    shape = small_models.LLAMA | {"positions": {"kind": "rope", "layout": layout}}
    start, out, base = small_models.folder(tmp_path / "start", shape), tmp_path / "out", tmp_path / "hf"
    started(small_models.table(out, start, text), *RANK, f"lora.targets={targets}", "optimizer.lr=0.5")
    huggingface.write(base, model_folder.read(start))
    ids = torch.tensor([[1, 5, 9, 2, 40, 7]])
    theirs = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        before = theirs(ids).logits
        theirs = peft.PeftModel.from_pretrained(theirs, out / "adapter").eval()
        ours = pellucid.load(out / "model").module(ids)
        torch.testing.assert_close(theirs(ids).logits, ours, rtol=1e-5, atol=1e-5)
    assert (ours - before).abs().max() > 0.01


def test_gpt2_s_adapter_is_a_file_of_our_own_that_says_why(tmp_path: Path, text: Path) -> None:
    start, out = small_models.folder(tmp_path / "start", small_models.GPT2), tmp_path / "out"
    run = started(small_models.table(out, start, text), *RANK)
    about = json.loads((out / "adapter" / "adapter.json").read_text())
    assert about["format"] == "pellucid-adapter" and about["version"] == 1
    assert all(name in about["why_not_peft"] for name in ("q_proj", "k_proj", "v_proj", "c_attn"))
    tensors = load_file(out / "adapter" / "adapter.safetensors")
    learning = run.state.weights.trainable
    assert set(tensors) == set(learning)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, learning[name].detach().numpy())


def test_a_shape_that_no_family_has_gets_a_file_of_our_own() -> None:
    config = small_models.model(small_models.LLAMA | {"positions": "sinusoidal"}).config
    assert peft_names(config, ["blocks.0.attn.q_proj"]) == (
        {},
        "no Hugging Face family expresses this config",
    )
