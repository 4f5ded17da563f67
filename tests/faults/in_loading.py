"""Faults of readers: a file is opened without complaint, and its numbers are others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pellucid.base.dtypes import decode
from pellucid.engine import transformer
from pellucid.formats.gguf import container, quants
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface import reading as huggingface_reading
from pellucid.formats.huggingface.families import bloom, gpt2, llama
from pellucid.reference.op import Array
from tests.faults import loaded
from tests.faults.fault import Patch, fault, replacing

assert loaded.SUBJECTS  # it adds the subjects

Q, K = "blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight"


def change_link(patch: Patch, change: Callable[[families.Link, Array], Array]) -> None:
    """Changes each weight of a Hugging Face folder after it was read."""
    right = families.Link._read_rows
    patch.setattr(
        families.Link, "_read_rows", lambda self, *given: change(self, np.array(right(self, *given)))
    )


def change_gguf(patch: Patch, change: Callable[[str, Array], Array]) -> None:
    """Changes each tensor of a GGUF file after it was read."""
    right = container.Container.rows
    patch.setattr(
        container.Container,
        "rows",
        lambda self, name, *given: change(name, np.array(right(self, name, *given))),
    )


def change_quant(patch: Patch, kind: str, wrong: Callable[[Array], Array]) -> None:
    type = quants.BY_NAME[kind]
    patch.setitem(quants.BY_CODE, type.code, replace(type, decode=wrong))


def _swap(
    tensors: tuple[tuple[str, ...], ...], a: str, b: str, begin: int = 1
) -> tuple[tuple[str, ...], ...]:
    """Returns the table with two of our names exchanged."""
    other = {a: b, b: a}
    return tuple(
        (theirs, *(".".join(other.get(part, part) for part in name.split(".")) for name in ours))
        for theirs, *ours in tensors
    )


# ---- numbers


@fault("loading", subject="llama bfloat16", check="file weights", at=K)
def bfloat16_read_through_float16(patch: Patch) -> None:
    """bfloat16 weights pass through float16, which has no numbers that small."""
    right = decode
    patch.setattr(
        families,
        "decode",
        lambda bits, code: (
            right(bits, code).astype(np.float16).astype(np.float32) if code == "BF16" else right(bits, code)
        ),
    )


@fault("loading", subject="llama float16", check="file weights", at="embed.weight")
@replacing(families, "decode")
def float16_subnormals_flushed(right: Any, bits: Array, code: str) -> Array:
    """float16 numbers below the smallest normal one are read as 0."""
    numbers = decode(bits, code)
    return np.where(np.abs(numbers) < 2.0**-14, np.float32(0), numbers) if code == "F16" else numbers


@fault("loading", subject="llama bfloat16", check="file weights", at="blocks.1.attn.v_proj.weight")
@replacing(huggingface_reading, "read_tensors")
def a_tensor_of_another_shard_read_twice(right: Any, folder: Any) -> Any:
    """The second shard's tensor of a name is that of the first layer again."""
    found = dict(right(folder))
    found["model.layers.1.self_attn.v_proj.weight"] = found["model.layers.0.self_attn.v_proj.weight"]
    return found


@fault("loading", subject="gpt2", check="file weights", at="blocks.0.attn.o_proj.weight")
def a_square_matrix_not_transposed(patch: Patch) -> None:
    """GPT-2's square Conv1D is taken as it is stored, (in, out)."""
    change_link(patch, lambda link, rows: rows.T if link.theirs.endswith(".attn.c_proj.weight") else rows)


@fault("loading", subject="qwen2", check="file weights", at="blocks.0.attn.q_proj.bias")
def biases_left_at_zero(patch: Patch) -> None:
    """The biases of queries, keys and values are never copied."""
    change_link(patch, lambda link, rows: 0 * rows if link.theirs.endswith("_proj.bias") else rows)


@fault("loading", subject="llama", check="file weights", at="blocks.0.attn_norm.weight")
def gains_read_as_one_more(patch: Patch) -> None:
    """Gains are read as 1 + γ, as Gemma stores them."""
    change_link(patch, lambda link, rows: rows + 1 if link.theirs.endswith("norm.weight") else rows)


@fault("loading", subject="llama", check="transformers", at="blocks.0.attn_norm.weight")
def gains_read_as_one_more_by_transformers(patch: Patch) -> None:
    """Gains are read as 1 + γ; transformers' own weights show it as well."""
    change_link(patch, lambda link, rows: rows + 1 if link.theirs.endswith("norm.weight") else rows)


@fault("loading", subject="gguf", check="file weights", at="embed.weight")
def unused_rows_of_the_vocabulary_set_to_zero(patch: Patch) -> None:
    """The rows of the embedding that pad the vocabulary are cleared."""

    def wrong(name: str, rows: Array) -> Array:
        if name == "token_embd.weight":
            rows[-4:] = 0
        return rows

    change_gguf(patch, wrong)


@fault("loading", subject="gguf", check="file weights", at=K)
def two_key_heads_exchanged(patch: Patch) -> None:
    """The rows of two key heads change places when a GGUF file is read."""
    change_gguf(patch, lambda name, rows: np.roll(rows, 16, 0) if "attn_k." in name else rows)


@fault("loading", subject="gguf gpt2", check="file weights", at=Q)
def fused_rows_begin_one_late(patch: Patch) -> None:
    """The part of a fused tensor is read from its second row on."""
    change_gguf(patch, lambda name, rows: np.roll(rows, 1, 0) if name.endswith("attn_qkv.weight") else rows)


@fault("loading", subject="gguf Q4_0", check="file weights", at="embed.weight")
def q4_0_without_its_offset(patch: Patch) -> None:
    """4-bit integers are centered at 7 and not at 8."""
    change_quant(patch, "Q4_0", lambda blocks: quants._scale(blocks["d"], quants._nibbles(blocks) - 7.0))


@fault("loading", subject="gguf Q4_0", check="file weights", at="embed.weight")
def q4_0_nibbles_in_pairs(patch: Patch) -> None:
    """The two halves of a byte are taken for neighbors."""

    def wrong(blocks: Array) -> Array:
        halves = quants._fields(blocks["q"], 4).transpose(0, 2, 1).reshape(-1, 32)
        return quants._scale(blocks["d"], halves.view(np.int8) - np.int8(8))

    change_quant(patch, "Q4_0", wrong)


@fault("loading", subject="gguf Q4_1", check="file weights", at="embed.weight")
def q4_1_without_its_minimum(patch: Patch) -> None:
    """The minimum of each block is dropped."""
    change_quant(patch, "Q4_1", lambda blocks: quants._scale(blocks["d"], quants._nibbles(blocks)))


@fault("loading", subject="gguf Q5_0", check="file weights", at="embed.weight")
def q5_0_high_bits_reversed(patch: Patch) -> None:
    """The fifth bits are read from the highest on."""

    def wrong(blocks: Array) -> Array:
        high = np.unpackbits(blocks["high"], axis=-1, bitorder="big")
        return quants._scale(blocks["d"], (quants._nibbles(blocks) | (high << 4).view(np.int8)) - np.int8(16))

    change_quant(patch, "Q5_0", wrong)


@fault("loading", subject="gguf Q8_0", check="file weights", at="embed.weight")
def q8_0_scale_rounded(patch: Patch) -> None:
    """The scale of a block is rounded to bfloat16."""

    def wrong(blocks: Array) -> Array:
        scales = (blocks["d"].astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return scales[:, None] * blocks["q"]

    change_quant(patch, "Q8_0", wrong)


@fault("loading", subject="llama", check="engine weights", at=Q)
@replacing(transformer.Transformer, "from_weights")
def engine_copies_through_float16(right: Any, config: Any, weights: Any, *more: Any) -> Any:
    """The fast engine's queries pass through float16 on their way into bfloat16 and float32."""
    module = right(config, weights, *more)
    with torch.no_grad():
        weight = module.get_parameter(Q)
        weight.copy_((weight * 1.0003).half())
    return module


# ---- tables of names


@fault("loading", subject="gpt2", check="transformers", at="blocks.0.attn.q")
def fused_queries_and_keys_exchanged(patch: Patch) -> None:
    """GPT-2's fused tensor is split as k, q, v."""
    patch.setattr(gpt2.Gpt2Family, "tensors", _swap(gpt2.Gpt2Family.tensors, "q_proj", "k_proj"))


@fault("loading", subject="bloom", check="transformers", at="blocks.0.attn.q")
def fused_heads_taken_for_blocks(patch: Patch) -> None:
    """BLOOM's fused rows are taken for all queries, then all keys, then all values."""
    patch.setattr(bloom.BloomFamily, "by_head", ())


@fault("loading", subject="llama", check="transformers", at="blocks.0.mlp.gate")
def gate_and_up_exchanged(patch: Patch) -> None:
    """The gate's matrix is taken for the up-projection's."""
    patch.setattr(llama.LlamaFamily, "tensors", _swap(llama.LlamaFamily.tensors, "gate_proj", "up_proj"))


@fault("loading", subject="qwen3", check="transformers", at=Q)
@replacing(families.Link, "_group_rows")
def query_rows_in_another_order(right: Any, self: Any, rows: Any) -> Any:
    """The rows of the queries are taken head by head in reverse, as if the table had another order."""
    return rows.reshape(self.groups, -1, *rows.shape[1:])[
        :, :: -1 if self.theirs.endswith("q_proj.weight") else 1
    ]


@fault("loading", subject="llama untied", check="transformers", at="unembed.weight")
def an_untied_head_read_as_tied(patch: Patch) -> None:
    """A file with its own unembedding is read as if it had none."""
    right = huggingface_reading._add_prefixes
    patch.setattr(
        huggingface_reading,
        "_add_prefixes",
        lambda family, tensors: {
            name: tensor for name, tensor in right(family, tensors).items() if name != "lm_head.weight"
        },
    )
    choices = llama.LlamaFamily.choices
    patch.setattr(
        llama.LlamaFamily, "choices", lambda self, keys: choices(self, keys) | {"unembedding": "tied"}
    )
