"""Tiny GPT-2 and Llama models give the numbers that Hugging Face's implementations gave."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.parts.mlps import GeluTanh
from pellucid.parts.norms import LayerNormConfig, RmsNormConfig
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.rope import Rope
from pellucid.parts.unembeddings import LinearUnembedding
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.mismatch import find_first_mismatch, find_mismatch

HERE = Path(__file__).parent
ROPE_BASES = (10_000, 500_000)

GPT2 = ModelConfig(
    vocab_size=11,
    context_length=8,
    n_layer=2,
    n_head=2,
    d_model=16,
    positions=Learned(),
    norm=LayerNormConfig(),
    mlp=GeluTanh(),
    biases=("qkv", "output", "mlp", "norm"),
)
LLAMA = ModelConfig(
    vocab_size=13,
    context_length=8,
    n_layer=2,
    n_head=4,
    n_kv_head=2,
    d_model=16,
    d_head=6,
    d_ff=20,
    norm=RmsNormConfig(eps=1e-6),
    unembedding=LinearUnembedding(),
)

NAMES = (
    ("transformer.wte", "embed"),
    ("transformer.wpe", "positions"),
    ("transformer.ln_f", "final_norm"),
    ("transformer.h", "blocks"),
    ("ln_1", "attn_norm"),
    ("ln_2", "mlp_norm"),
    ("attn.c_proj", "attn.o_proj"),
    ("mlp.c_fc", "mlp.up_proj"),
    ("mlp.c_proj", "mlp.down_proj"),
    ("model.embed_tokens", "embed"),
    ("model.norm", "final_norm"),
    ("model.layers", "blocks"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "mlp_norm"),
    ("self_attn", "attn"),
    ("lm_head", "unembed"),
)


def stored(family: str) -> dict[str, Array]:
    with np.load(HERE / f"huggingface_{family}.npz") as file:
        return dict(file)


def weights(golden: dict[str, Array]) -> dict[str, Array]:
    """Hugging Face's parameters under our names; its Conv1D holds (in, out), and c_attn is q, k, v in one."""
    found = {}
    for theirs, value in golden.items():
        if not theirs.startswith(("transformer.", "model.", "lm_head.")):
            continue
        if re.search(r"\.c_\w+\.weight", theirs):
            value = value.T
        ours = theirs
        for old, new in NAMES:
            ours = ours.replace(old, new)
        if "c_attn" in ours:
            for which, part in zip("qkv", np.split(value, 3), strict=True):
                found[ours.replace("c_attn", f"{which}_proj")] = part
        else:
            found[ours] = value
    return found


def ours(config: ModelConfig, golden: dict[str, Array]) -> dict[str, Array]:
    """Logits and loss; Hugging Face's labels are the ids themselves, so the targets are one further."""
    targets = np.pad(golden["labels"][:, 1:], [(0, 0), (0, 1)], constant_values=-100)
    tape = forward(config, weights(golden), golden["ids"], targets, padding=golden["real"])
    return {name: tape[name] for name in ("logits", "loss")}


def with_rope(base: float, layout: str = "halves") -> ModelConfig:
    return dataclasses.replace(LLAMA, positions=Rope(base=float(base), layout=layout))


@pytest.mark.parametrize(("config", "family"), [(GPT2, "gpt2"), (LLAMA, "llama")])
def test_every_parameter_has_its_place_in_the_stored_model(config: ModelConfig, family: str) -> None:
    shapes = {name: value.shape for name, value in weights(stored(family)).items()}
    assert shapes == config.parameters()


def test_gpt2_logits_and_loss_are_hugging_faces() -> None:
    golden = stored("gpt2")
    assert find_first_mismatch(ours(GPT2, golden), {k: golden[k] for k in ("logits", "loss")}, 1e-10) is None


@pytest.mark.parametrize("base", ROPE_BASES)
def test_llama_logits_and_loss_are_hugging_faces(base: float) -> None:
    golden = stored("llama")
    wanted = {name: golden[f"base_{base}.{name}"] for name in ("logits", "loss")}
    assert find_first_mismatch(ours(with_rope(base), golden), wanted, 1e-10) is None


@pytest.mark.parametrize("base", ROPE_BASES)
def test_llama_as_it_is_run_differs_only_by_its_float32_places(base: float) -> None:
    golden = stored("llama")
    untouched = golden[f"base_{base}.untouched_logits"]
    found = ours(with_rope(base), golden)["logits"]
    assert find_mismatch("logits", found, untouched, 1e-6) is None
    assert find_mismatch("logits", found, untouched, 1e-10) is not None


@pytest.mark.parametrize("wrong", [with_rope(10_000, "pairs"), with_rope(500_000)], ids=["layout", "base"])
def test_wrong_rotary_layout_or_base_is_caught(wrong: ModelConfig) -> None:
    golden = stored("llama")
    found = ours(wrong, golden)["logits"]
    wanted = golden["base_10000.logits"]
    assert find_mismatch("logits", found[:, :1], wanted[:, :1], 1e-10) is None  # position 0 is not turned
    assert find_mismatch("logits", found, wanted, 1e-3) is not None


def test_stored_gpt2_is_what_the_script_makes() -> None:
    from tests.golden.make_huggingface import gpt2

    golden, made = stored("gpt2"), gpt2()
    assert list(made) == list(golden)
    assert find_first_mismatch(made, golden, 1e-12) is None
