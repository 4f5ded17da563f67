"""An adapter on the disk means the same to us and to `peft`, and what would be another formula is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import pellucid
from pellucid.base.errors import FileError
from pellucid.formats import huggingface, model_folder
from pellucid.formats.adapter import Adapter, merge_adapter, read_adapter, write_adapter
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.resolve import open_model
from tests.cli.commands import Shell
from tests.training import small_models

PAIRS = small_models.LLAMA | {"positions": {"kind": "rope", "layout": "pairs"}}


def drawn(model: Pretrained, *paths: str) -> Adapter:
    """An adapter of rank 3 with alpha 6 for these projections, all where none is named."""
    rng, shapes, tensors = np.random.default_rng(5), model.config.parameters(), {}
    every = [name.removesuffix(".weight") for name in shapes if name.endswith("_proj.weight")]
    for path in paths or every:
        out, width = shapes[f"{path}.weight"]
        tensors[f"{path}.lora_a"] = rng.normal(size=(3, width)).astype(np.float32)
        tensors[f"{path}.lora_b"] = rng.normal(size=(out, 3)).astype(np.float32) * np.float32(0.1)
    return Adapter(model.config, tensors, 3, 6.0, 0.0, "somewhere")


@pytest.mark.parametrize(
    "shape", [small_models.LLAMA, PAIRS, small_models.GPT2], ids=["halves", "pairs", "gpt2"]
)
def test_an_adapter_comes_back_as_it_was(shape: dict[str, Any], tmp_path: Path) -> None:
    model = small_models.model(shape)
    given = drawn(model)
    write_adapter(tmp_path / "a", given)
    found = read_adapter(tmp_path / "a", model.config)
    assert (found.rank, found.alpha, found.base) == (3, 6.0, "somewhere")
    assert set(found.tensors) == set(given.tensors)
    for name, tensor in given.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor, err_msg=name)


def test_merging_adds_the_product_where_there_is_an_adapter_and_nowhere_else() -> None:
    model = small_models.model()
    given = drawn(model, "blocks.1.mlp.up_proj")
    after = merge_adapter(model, given).weights
    a, b = given.tensors.values()
    wanted = model.weights["blocks.1.mlp.up_proj.weight"] + 2 * b @ a
    np.testing.assert_allclose(after["blocks.1.mlp.up_proj.weight"], wanted, rtol=1e-6, atol=1e-7)
    for name in set(model.weights) - {"blocks.1.mlp.up_proj.weight"}:
        np.testing.assert_array_equal(after[name], model.weights[name])


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_a_merged_weight_is_written_as_wide_as_it_must_be(dtype: str, tmp_path: Path) -> None:
    model_folder.write(tmp_path / "base", small_models.model(), dtype)
    base = open_model(tmp_path / "base")
    model_folder.write(tmp_path / "whole", merge_adapter(base, drawn(base, "blocks.0.attn.q_proj")))
    types = open_model(tmp_path / "whole").provenance.types
    narrow, wide = ("BF16", "F32") if dtype == "bfloat16" else ("F64", "F64")
    assert types["blocks.0.attn.q_proj.weight"] == wide and types["blocks.1.attn.q_proj.weight"] == narrow


def test_export_merges_an_adapter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, out = small_models.folder(tmp_path / "base", PAIRS), tmp_path / "hf"
    model = open_model(base)
    write_adapter(tmp_path / "adapter", given := drawn(model))
    done = Shell(capsys, monkeypatch)(
        "export", base, "--to", "hf", "-o", out, "--adapter", tmp_path / "adapter"
    )
    assert done.code == 0, done.err
    model_folder.write(tmp_path / "whole", merge_adapter(model, given))
    ids = torch.tensor([[1, 5, 9, 2]])
    a, b = (pellucid.load(path, dtype="float64").module(ids) for path in (out, tmp_path / "whole"))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [small_models.LLAMA, PAIRS], ids=["halves", "pairs"])
def test_an_adapter_that_peft_wrote_is_merged_as_peft_computes_it(
    shape: dict[str, Any], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    base = small_models.folder(tmp_path / "base", shape)
    huggingface.write(tmp_path / "hf", open_model(base))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    asked = peft.LoraConfig(
        r=2, lora_alpha=5, target_modules=["q_proj", "k_proj", "down_proj"], init_lora_weights=False
    )
    theirs = peft.get_peft_model(theirs, asked).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    model = open_model(base)
    model_folder.write(
        tmp_path / "whole", merge_adapter(model, read_adapter(tmp_path / "adapter", model.config))
    )
    ids = torch.tensor([[1, 5, 9, 2, 40, 7]])
    with torch.no_grad():
        ours = pellucid.load(tmp_path / "whole").module(ids)
        torch.testing.assert_close(ours, theirs(ids).logits, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(ours, pellucid.load(base).module(ids), atol=1e-2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"use_dora": True}, "'use_dora' is True"),
        ({"use_rslora": True}, "'use_rslora' is True"),
        ({"bias": "all"}, "'bias' is 'all'"),
        ({"rank_pattern": {"q_proj": 2}}, "'rank_pattern' is"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save' is"),
        ({"r": 0}, "r is 0"),
        ({"r": 4}, r"has the shape \(3, 16\), not \(4, 16\)"),
        ({"lora_alpha": None}, "lora_alpha is None"),
        *(
            ({"init_lora_weights": value}, f"'init_lora_weights' is '{value}'.*merge_and_unload")
            for value in ("pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq", "one of tomorrow")
        ),
        ({"alora_invocation_tokens": [9, 2]}, r"'alora_invocation_tokens' is \[9, 2\]"),
        ({"target_parameters": ["w"]}, "'target_parameters' is"),
        ({"setting_of_tomorrow": {"a": 1}}, "'setting_of_tomorrow' is"),
    ],
)
def test_what_would_be_another_formula_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    model = small_models.model()
    write_adapter(tmp_path / "a", drawn(model))
    path = tmp_path / "a" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError, match=words):
        read_adapter(tmp_path / "a", model.config)


def test_settings_that_leave_the_formula_alone_are_read(tmp_path: Path) -> None:
    """Those that `peft` itself writes by default are read where its own adapter is."""
    given = drawn(small_models.model())
    write_adapter(tmp_path / "a", given)
    path = tmp_path / "a" / "adapter_config.json"
    kept = json.loads(path.read_text())
    for value in (True, False, "gaussian", "orthogonal", "eva", "mica"):
        change = {"init_lora_weights": value, "lora_dropout": 0.1, "tomorrow": None, "exclude_modules": ["k"]}
        path.write_text(json.dumps(kept | change))
        assert read_adapter(tmp_path / "a", given.config).rank == 3


@pytest.mark.parametrize("shape", [small_models.LLAMA, small_models.GPT2], ids=["peft", "own"])
def test_an_adapter_with_nan_or_inf_is_refused(shape: dict[str, Any], tmp_path: Path) -> None:
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        given = drawn(small_models.model(shape), "blocks.0.attn.q_proj")
        given.tensors["blocks.0.attn.q_proj.lora_b"][1, 2] = value
        write_adapter(tmp_path / name, given)
        with pytest.raises(FileError, match="NaN or Inf"):
            read_adapter(tmp_path / name, given.config)


def test_an_adapter_that_is_opened_as_a_model_is_called_one(tmp_path: Path) -> None:
    for name, shape in (("peft", small_models.LLAMA), ("own", small_models.GPT2)):
        write_adapter(tmp_path / name, drawn(small_models.model(shape)))
        with pytest.raises(FileError, match=r"LoRA adapter.*export"):
            open_model(tmp_path / name)


def test_tensors_of_another_model_and_halves_of_an_adapter_are_refused(tmp_path: Path) -> None:
    model = small_models.model()
    write_adapter(tmp_path / "a", drawn(model, "blocks.0.attn.q_proj"))
    path = tmp_path / "a" / "adapter_model.safetensors"
    tensors = load_file(path)
    a, b = sorted(tensors)
    save_file({a: tensors[a]}, path)
    with pytest.raises(FileError, match=r"blocks\.0\.attn\.q_proj.*A and B"):
        read_adapter(tmp_path / "a", model.config)
    save_file(tensors | {"base_model.model.model.layers.9.mlp.up_proj.lora_A.weight": tensors[a]}, path)
    with pytest.raises(FileError, match=r"layers\.9\."):
        read_adapter(tmp_path / "a", model.config)
    with pytest.raises(FileError, match="q_proj"):
        read_adapter(tmp_path / "a", small_models.model(small_models.GPT2).config)
    with pytest.raises(FileError, match=r"adapter_config\.json"):
        read_adapter(tmp_path, model.config)
    assert b.endswith("lora_B.weight")
