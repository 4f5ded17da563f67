"""Every check can fail: a fault is planted, and the check that guards against it names the place."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pellucid
from pellucid.checks.catalogue import CHECKS
from pellucid.checks.check import Subject
from pellucid.interop import model_folder
from pellucid.judge.verdict import Finding
from pellucid.model import layer_cache, positions, transformer
from pellucid.model.attentions import softmax as attention
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array
from pellucid.text.tokenizer import Tokenizer
from pellucid.workbench import Model
from tests.agreement import other_activation
from tests.interop.tokenizers import bpe_file

Patch = pytest.MonkeyPatch
Fault = Callable[[Model, Patch], Model]
QUERIES = "blocks.1.attn.q_proj.weight"


def checked(name: str, model: Model) -> Finding:
    check = next(check for check in CHECKS if check.name == name)
    return check.measure(Subject(model))


def with_parts(model: Model, **changes: Any) -> Model:
    """The same model otherwise, still at the path where its file is."""
    return Model(replace(model.pretrained, **changes), dtype=model.dtype)


def two_heads_swapped(weight: Array, width: int = 8) -> Array:
    """The first two query heads, which read the same keys."""
    return np.concatenate((weight[width : 2 * width], weight[:width], weight[2 * width :]))


# ---- faults of a file's reader


def layout_flipped(model: Model, patch: Patch) -> Model:
    rope = model.config.positions
    assert isinstance(rope, Rope) and rope.layout == "halves"
    return with_parts(model, config=replace(model.config, positions=replace(rope, layout="pairs")))


def heads_swapped(model: Model, patch: Patch) -> Model:
    weights = dict(model.weights)
    return with_parts(model, weights=weights | {QUERIES: two_heads_swapped(weights[QUERIES])})


def one_number_missing(model: Model, patch: Patch) -> Model:
    weight = model.weights[QUERIES].copy()
    weight[1, 2] = np.inf
    return with_parts(model, weights={**model.weights, QUERIES: weight})


# ---- faults of the fast engine


def heads_swapped_when_loading(model: Model, patch: Patch) -> Model:
    made = transformer.Transformer.from_weights

    def wrong(config: Any, weights: Any, *more: Any) -> Any:
        return made(config, {**weights, QUERIES: two_heads_swapped(weights[QUERIES])}, *more)

    patch.setattr(transformer.Transformer, "from_weights", wrong)
    return model


class Steeper(torch.autograd.Function):
    """x, whose gradient is a thousandth too large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        return 1.001 * gradient[0]


def gradient_wrong(model: Model, patch: Patch) -> Model:
    other_activation.plant(patch, lambda right, x: Steeper.apply(right(x)))
    return model


def softmax_in_float16(model: Model, patch: Patch) -> Model:
    right = attention.softmax

    def wrong(scores: Tensor) -> Tensor:
        return right(scores.half()).to(scores.dtype) if scores.dtype == torch.float32 else right(scores)

    patch.setattr(attention, "softmax", wrong)
    return model


def another_activation_in_bfloat16(model: Model, patch: Patch) -> Model:
    other_activation.plant(patch, lambda right, x: F.gelu(x) if x.dtype == torch.bfloat16 else right(x))
    return model


def positions_rounded(model: Model, patch: Patch) -> Model:
    """The classic: positions and frequencies in the model's type, before the angles."""
    right = positions.Positions.rotation

    def wrong(self: positions.Positions, places: Tensor, dtype: torch.dtype) -> Any:
        rotation = right(self, places, dtype)
        assert rotation and self.angles is not None
        angles = places.to(dtype)[:, None] * self.angles[1].to(dtype)
        return rotation.from_cos_sin(
            angles.cos().to(rotation.cos.dtype), angles.sin().to(rotation.sin.dtype), self.layout
        )

    patch.setattr(positions.Positions, "rotation", wrong)
    return model


def kernel_sees_ahead(model: Model, patch: Patch) -> Model:
    right = attention.SoftmaxAttention._attend_fused
    patch.setattr(
        attention.SoftmaxAttention,
        "_attend_fused",
        lambda self, q, k, v, inputs: right(self, q, k, v, inputs._replace(is_causal=False)),
    )
    return model


def neighbours_mixed(model: Model, patch: Patch) -> Model:
    right = attention.softmax
    patch.setattr(attention, "softmax", lambda scores: right(scores + 0.01 * scores.mean(0, keepdim=True)))
    return model


def padding_seen(model: Model, patch: Patch) -> Model:
    right = transformer.Transformer._make_mask
    patch.setattr(
        transformer.Transformer,
        "_make_mask",
        lambda self, queries, keys, _, *more: right(self, queries, keys, None, *more),
    )
    return model


# ---- faults of the cache


def written_one_late(model: Model, patch: Patch) -> Model:
    right = layer_cache.write_slots

    def wrong(buffer: Tensor, new: Tensor, slots: Tensor) -> None:
        late = slots + 1 if new.shape[2] == 1 else slots
        right(buffer, new, late.clamp_max(buffer.shape[2] - 1))

    patch.setattr(layer_cache, "write_slots", wrong)
    return model


def chunks_blind_to_themselves(model: Model, patch: Patch) -> Model:
    """From the second piece on, a token does not see itself."""
    right = transformer.Transformer._make_mask

    def wrong(self: Any, queries: Tensor, keys: Tensor, *more: Any) -> Any:
        later = queries.shape[-1] > 1 and keys.shape[-1] > queries.shape[-1]
        return right(self, queries - 1 if later else queries, keys, *more)

    patch.setattr(transformer.Transformer, "_make_mask", wrong)
    return model


def scales_too_large(model: Model, patch: Patch) -> Model:
    read = layer_cache.Int8Cache.read

    def wrong(self: layer_cache.Int8Cache, *given: Any) -> tuple[Tensor, Tensor]:
        keys, values = read(self, *given)
        return keys * 1.5, values * 1.5

    patch.setattr(layer_cache.Int8Cache, "read", wrong)
    return model


# ---- faults of files and tokenizers


def saved_wrongly(model: Model, patch: Patch) -> Model:
    write = model_folder.write

    def wrong(folder: Path, pretrained: Any) -> None:
        changed = {QUERIES: np.nextafter(pretrained.weights[QUERIES], np.float32(9))}
        write(folder, replace(pretrained, weights={**pretrained.weights, **changed}))

    patch.setattr(model_folder, "write", wrong)
    return model


class Changed:
    """A tokenizer whose ids are others when it encodes, and perhaps when it decodes."""

    def __init__(self, tokenizer: Tokenizer, both: bool) -> None:
        self.tokenizer, self.both = tokenizer, both

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        return [self.other(id) for id in self.tokenizer.encode(text, parse_special)]

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode([self.other(id) for id in ids] if self.both else ids)

    @staticmethod
    def other(id: int) -> int:
        """Two letters change places."""
        return {68: 69, 69: 68}.get(id, id)


def encoded_wrongly(model: Model, patch: Patch) -> Model:
    return with_parts(model, tokenizer=Changed(model.tokenizer, both=False))


def ids_renumbered(model: Model, patch: Patch) -> Model:
    return with_parts(model, tokenizer=Changed(model.tokenizer, both=True))


FAULTS: dict[str, tuple[Fault, str, str, str]] = {
    "infinity": (one_number_missing, "gpt2", "weights", QUERIES),
    "layout": (layout_flipped, "llama", "transformers", "embedded … blocks.0.resid_post"),
    "heads in memory": (
        heads_swapped, "llama", "transformers", "blocks.0.resid_post … blocks.1.resid_post",
    ),
    "heads in the engine": (heads_swapped_when_loading, "llama", "specification", "blocks.1.attn.q"),
    "gradient": (gradient_wrong, "gguf", "gradients", "d.blocks.1.mlp.gate"),
    "finite difference": (gradient_wrong, "gguf", "finite differences", "d.embed.weight"),
    "float16 inside": (softmax_in_float16, "llama", "float32", "blocks.0.attn.pattern"),
    "activation": (another_activation_in_bfloat16, "llama", "bfloat16", "blocks.0.mlp.act"),
    "rounded positions": (positions_rounded, "llama", "far positions", "blocks.0.attn.q_rot"),
    "kernel": (kernel_sees_ahead, "llama", "fused", "blocks.0.attn.q_rot … z"),
    "batch": (neighbours_mixed, "llama", "batched", "blocks.0.attn.pattern"),
    "padding": (padding_seen, "llama", "padded", "blocks.0.attn.pattern (left)"),
    "slot": (written_one_late, "llama", "cached", "blocks.0.attn.k_all"),
    "chunk": (chunks_blind_to_themselves, "gpt2", "chunked prefill", "mask"),
    "int8": (scales_too_large, "gpt2", "int8 cache", "blocks.0.attn.k_all"),
    "file": (saved_wrongly, "gpt2", "saved", QUERIES),
    "encoding": (encoded_wrongly, "llama", "tokenizer", "tokenizer.decode"),
    "numbering": (ids_renumbered, "llama", "tokenizer outside", "tokenizer.encode"),
    "another file": (heads_swapped, "gguf", "llama.cpp", "logits[t="),
}  # fmt: skip
"""The fault, the model that has it, the check that finds it, and the place that is named."""
ELSEWHERE = {"compiled", "conventions"}
"""tests/agreement/test_paths.py and test_conventions.py."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_named(
    name: str, models: dict[str, str | Path], monkeypatch: Patch
) -> None:
    fault, which, check, place = FAULTS[name]
    model = pellucid.load(models[which])
    assert checked(check, model).verdict in ("equal", "noise")
    found = checked(check, fault(model, monkeypatch))
    assert found.verdict == "BUG", found
    assert found.at == place or (place[-1] in " =" and found.at.startswith(place))
    assert found.measured


def test_a_fault_in_one_layer_of_a_real_width_is_named_at_its_layer(tmp_path: Path) -> None:
    """Where only the stream between the layers is seen, and rounding in 576 channels could excuse much."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=300, max_position_embeddings=64, num_hidden_layers=3, hidden_size=576,
        intermediate_size=768, num_attention_heads=9, num_key_value_heads=3, initializer_range=0.04,
    )  # fmt: skip
    LlamaForCausalLM(shape).save_pretrained(tmp_path)
    model = pellucid.load(bpe_file(tmp_path))
    assert checked("transformers", model).verdict == "noise"
    swapped = {QUERIES: two_heads_swapped(model.weights[QUERIES], 64)}
    found = checked("transformers", with_parts(model, weights=dict(model.weights) | swapped))
    assert (found.verdict, found.at) == ("BUG", "blocks.0.resid_post … blocks.1.resid_post"), found


def test_every_check_has_a_planted_fault() -> None:
    assert {check.name for check in CHECKS} == {check for _, _, check, _ in FAULTS.values()} | ELSEWHERE


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (positions_rounded, "specification"),
        (positions_rounded, "float32"),
        (another_activation_in_bfloat16, "float32"),
        (kernel_sees_ahead, "bfloat16"),
        (chunks_blind_to_themselves, "cached"),
        (ids_renumbered, "tokenizer"),
        (heads_swapped, "specification"),
        (layout_flipped, "gradients"),
    ],
)
def test_a_fault_is_not_blamed_on_what_it_does_not_touch(
    fault: Fault, check: str, models: dict[str, str | Path], monkeypatch: Patch
) -> None:
    assert checked(check, fault(pellucid.load(models["llama"]), monkeypatch)).verdict in ("equal", "noise")


def test_a_bug_is_reported_with_its_place_both_numbers_and_the_formula(
    models: dict[str, str | Path], monkeypatch: Patch
) -> None:
    model = pellucid.load(models["llama"])
    story = checked("far positions", positions_rounded(model, monkeypatch)).message
    assert story.startswith("BUG at blocks.0.attn.q_rot\n  blocks.0.attn.q_rot[h=")
    assert "where its inputs give" in story and "cos" in story and "sin" in story
