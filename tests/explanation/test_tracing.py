"""A trace of a model in a file refers to its weights, and is refused when they have changed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import AddressError, FileError, ResourceError, UsageError
from pellucid.base.quantized import Scheme
from pellucid.config import ModelConfig
from pellucid.explanation.tracing import read_trace, write_trace
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.model import Model
from pellucid.verification.foreign_values import recorded_values
from pellucid.verification.judge_run import judge_run
from pellucid.verification.replay import replay
from tests.reference.models import weights

CONFIG = ModelConfig(vocab_size=300, context_length=8, n_layer=1, n_head=2, d_model=16)
IDS = [1, 299, 7]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    held = {name: value.astype(np.float32) for name, value in weights(CONFIG).items()}
    source = Provenance(tmp_path, "pellucid", "pellucid", dict.fromkeys(held, "F32"), 0)
    model_folder.write(tmp_path / "model", Pretrained("tiny", CONFIG, held, None, source))
    return pellucid.load(tmp_path / "model")


def test_large_weights_are_referred_to_and_read_back(model: Model, tmp_path: Path) -> None:
    trace = model.trace(IDS)
    write_trace(model, trace, tmp_path / "t.json")
    entry = json.loads((tmp_path / "t.json").read_text())["tensors"]["embed.weight"]
    assert entry["ref"]["key"] == "embed.weight" and "values" not in entry and "store" not in entry
    again = read_trace(tmp_path / "t.json")
    assert np.array_equal(again.tape["embed.weight"], trace.tape["embed.weight"])
    done = replay(again)
    assert done.steps == done.exact and not done.mismatches


def test_a_model_that_changed_since_is_refused_by_the_weight(model: Model, tmp_path: Path) -> None:
    write_trace(model, model.trace(IDS), tmp_path / "t.json")
    changed = dict(model.weights)
    changed["embed.weight"] = changed["embed.weight"] + np.float32(1)
    (tmp_path / "model").rename(tmp_path / "old")
    source = model.pretrained.provenance
    model_folder.write(tmp_path / "model", Pretrained("tiny", CONFIG, changed, None, source))
    with pytest.raises(FileError, match=r"embed\.weight"):
        read_trace(tmp_path / "t.json")


def test_a_model_that_is_gone_is_named(model: Model, tmp_path: Path) -> None:
    write_trace(model, model.trace(IDS), tmp_path / "t.json")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    with pytest.raises(FileError, match=r"model: .*no such file or folder"):
        read_trace(tmp_path / "t.json")


def test_a_folder_that_holds_trace_and_model_can_be_moved(model: Model, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    trace = model.trace(IDS)
    write_trace(model, trace, tmp_path / "traces" / "t.json")
    (tmp_path / "elsewhere").mkdir()
    for name in ("traces", "model"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    again = read_trace(tmp_path / "elsewhere" / "traces" / "t.json")
    assert np.array_equal(again.tape["embed.weight"], trace.tape["embed.weight"])


def test_a_model_that_lies_beside_a_trace_by_chance_is_passed_over(model: Model, tmp_path: Path) -> None:
    """The checksum decides which of the two places holds the weights."""
    trace = model.trace(IDS)
    write_trace(model, trace, tmp_path / "t.json")
    other = dict(model.weights) | {"embed.weight": model.weights["embed.weight"] + np.float32(1)}
    (tmp_path / "new").mkdir()
    source = model.pretrained.provenance
    model_folder.write(tmp_path / "new" / "model", Pretrained("tiny", CONFIG, other, None, source))
    (tmp_path / "t.json").rename(tmp_path / "new" / "t.json")
    again = read_trace(tmp_path / "new" / "t.json")
    assert np.array_equal(again.tape["embed.weight"], trace.tape["embed.weight"])


def test_a_reference_without_a_relative_path_is_still_read(model: Model, tmp_path: Path) -> None:
    write_trace(model, model.trace(IDS), tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    del data["tensors"]["embed.weight"]["ref"]["relative"]
    (tmp_path / "t.json").write_text(json.dumps(data))
    assert "embed.weight" in read_trace(tmp_path / "t.json").tape


def test_an_update_keeps_its_weights_in_the_file(model: Model, tmp_path: Path) -> None:
    trace = model.trace(IDS, target=[5], update="sgd", lr=0.1)
    write_trace(model, trace, tmp_path / "t.json")
    assert '"ref"' not in (tmp_path / "t.json").read_text()
    assert replay(read_trace(tmp_path / "t.json")).mismatches == []


def test_a_trace_of_a_trained_model_keeps_its_weights_itself(model: Model, tmp_path: Path) -> None:
    with torch.no_grad():
        model.module.get_parameter("embed.weight").mul_(2)
    write_trace(model, model.trace(IDS), tmp_path / "t.json")
    again = read_trace(tmp_path / "t.json")
    assert np.array_equal(again.tape["embed.weight"], model.weights["embed.weight"])
    assert replay(again).mismatches == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_trace_of_the_fast_engine_survives_the_file_and_is_noise(
    model: Model, tmp_path: Path, dtype: str
) -> None:
    fast = pellucid.load(tmp_path / "model", dtype=dtype)
    trace = fast.trace(IDS, path="eager")
    write_trace(fast, trace, tmp_path / "t.json")
    again = read_trace(tmp_path / "t.json")
    assert again.run["path"] == "eager" and again.run["types"]["blocks.0.attn.q"] == dtype
    done = judge_run(again, recorded_values(again))
    assert done and done.worst is not None and done.worst.units > 0
    wrong = again.tape.values["blocks.0.attn.z"].copy()
    wrong[0, 1, 2, 3] += 0.5
    again.tape.values["blocks.0.attn.z"] = wrong
    assert judge_run(again, recorded_values(again)).bugs[0].name == "blocks.0.attn.z"


BIASED = ModelConfig(
    vocab_size=9, context_length=8, n_layer=2, n_head=2, d_model=8, biases=("output",), norm="layer_norm"
)


def make_biased() -> Model:
    """A model whose output biases are much larger than what a head adds."""
    values = weights(BIASED)
    for layer in range(BIASED.n_layer):
        values[f"blocks.{layer}.attn.o_proj.bias"] *= 1e4
    return Model(Pretrained("biased", BIASED, values, None, Provenance(Path(), "", "", {}, 0)))


@pytest.mark.parametrize("path", ["reference", "eager", "fused"])
def test_a_trace_by_head_has_the_sum_of_the_heads_and_is_within_rounding(path: str) -> None:
    model = make_biased()
    trace = model.trace([1, 3, 5], path=path, by_head=True)
    assert "blocks.1.attn.head_out" not in model.trace([1, 3, 5], path=path).tape
    for layer in range(BIASED.n_layer):
        bias = trace.tape[f"blocks.{layer}.attn.o_proj.bias"]
        total = trace.tape[f"blocks.{layer}.attn.head_out"].sum(1) + bias
        assert np.allclose(total, trace.tape[f"blocks.{layer}.attn_out"], rtol=1e-6)
    if path == "reference":
        assert replay(trace).exact == len(trace.tape.steps)
    else:
        assert judge_run(trace, recorded_values(trace))
        assert trace.run["types"]["blocks.0.attn.head_out"] == "float32"


def test_heads_are_explained_where_the_address_names_them() -> None:
    model = make_biased()
    found = model.explain([1, 3, 5], at="blocks.1.attn.head_out[h=1,t=2,c=3]")
    assert [operand.name for operand in found.operands] == ["blocks.1.attn.z", "blocks.1.attn.o_proj.weight"]
    grads = model.explain([1, 3], target=[5], at="d.blocks.1.attn.head_out[h=1,t=1,c=3]")
    assert grads.operands[0].name == "d.blocks.1.resid_mid"  # attn_out is added to the stream
    after = model.explain([1, 3], target=[5], update="sgd", lr=0.1, at="blocks.0.attn.head_out@1[h=0]")
    assert after.name == "blocks.0.attn.head_out@1"
    with pytest.raises(AddressError, match="by_head"):
        model.explain([1, 3], at="blocks.1.attn.head_out", by_head=False)


@pytest.fixture(params=["int8", "int4"])
def quantized(model: Model, request: pytest.FixtureRequest) -> Model:
    held = quantize_pretrained(model.pretrained, Scheme.from_name(request.param))
    return model.replace(weights=dict(held.weights))


def test_a_trace_of_a_quantized_model_is_written_read_and_replayed(quantized: Model, tmp_path: Path) -> None:
    trace = quantized.trace(IDS, target=[3], backward=True)
    write_trace(quantized, trace, tmp_path / "t.json")
    entries = json.loads((tmp_path / "t.json").read_text())["tensors"]
    assert entries["embed.weight"]["recomputed"] is True and "ref" not in entries["embed.weight.integers"]
    again = read_trace(tmp_path / "t.json")
    assert np.array_equal(again.tape["embed.weight"], trace.tape["embed.weight"])
    done = replay(again)
    assert done.steps == done.exact and not done.mismatches


@pytest.mark.parametrize("path", ["eager", "fused"])
def test_the_fast_engine_s_numbers_follow_from_its_own_quantized_weights(quantized: Model, path: str) -> None:
    for dtype in ("float32", "bfloat16"):
        model = Model(quantized.pretrained, dtype=dtype)
        trace = model.trace(IDS, path=path)
        assert trace.run["types"]["embed.weight"] == dtype
        report = judge_run(trace, recorded_values(trace), rounds_once=True, is_ours=True)
        assert report and "embed.weight" in {value.name for value in report.values}


def test_a_quantized_model_is_explained_as_scale_times_integer(quantized: Model) -> None:
    text = str(quantized.explain(IDS, "blocks.0.attn.q_proj.weight[out=3,in=5]"))
    assert "· q_Q[in,out]" in text and "integers[out=3,in=5]" in text


def test_an_update_of_a_quantized_model_is_refused(quantized: Model) -> None:
    with pytest.raises(UsageError, match="a model of floats"):
        quantized.trace(IDS, target=[3], update="sgd")


def test_values_that_do_not_fit_are_refused_before_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda device: 100_000)
    assert "logits" in pellucid.trace("abcd", "A B").tape
    monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda device: 100)
    with pytest.raises(ResourceError, match="3 tokens"):
        pellucid.trace("abcd", "A B C")
