"""Faults of readers: the numbers of a file are right, and its conventions are others."""

from typing import Any

import numpy as np

from pellucid.formats.gguf import rope_scaling, writing
from pellucid.formats.gguf.architectures import llama as gguf_llama
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface import reading as huggingface_reading
from pellucid.formats.huggingface.families import llama, mistral
from pellucid.parts.positions import alibi, learned, rope_yarn
from tests.faults import loaded
from tests.faults.fault import Patch, fault, replacing

assert loaded.SUBJECTS  # it adds the subjects

Q = "blocks.0.attn.q_proj.weight"


def _read_rope(patch: Patch, **changes: Any) -> None:
    right = llama.read_rope
    patch.setattr(llama, "read_rope", lambda keys: right(keys) | changes)


def _drop_scaling(patch: Patch) -> None:
    right = llama.read_rope

    def wrong(keys: Any) -> dict[str, Any]:
        found = right(keys)
        return {"kind": "rope", "base": found["base"], "layout": found["layout"]}

    patch.setattr(llama, "read_rope", wrong)


@fault("loading", subject="llama", check="transformers", at=Q)
def rope_in_pairs(patch: Patch) -> None:
    """A Hugging Face folder is read with RoPE's layout of the original Llama."""
    _read_rope(patch, layout="pairs")


@fault("loading", subject="llama theta", check="transformers", at="angles")
def rope_theta_ignored(patch: Patch) -> None:
    """The base of RoPE is the default instead of the file's."""
    _read_rope(patch, base=10_000.0)


@fault("loading", subject="llama linear", check="transformers", at="angles")
def linear_scaling_dropped(patch: Patch) -> None:
    """The linear scaling of RoPE is not applied."""
    _drop_scaling(patch)


@fault("loading", subject="llama yarn", check="transformers", at="angles")
def yarn_scaling_dropped(patch: Patch) -> None:
    """YaRN's scaling of RoPE is not applied."""
    _drop_scaling(patch)


@fault("loading", subject="llama llama3", check="transformers", at="angles")
def llama3_scaling_dropped(patch: Patch) -> None:
    """Llama 3's scaling of RoPE is not applied."""
    _drop_scaling(patch)


@fault("loading", subject="llama yarn", check="transformers", at="blocks.0.attn.scores")
def yarn_attention_factor_dropped(patch: Patch) -> None:
    """YaRN's angles are right, and its scale of the scores is 1."""
    patch.setattr(rope_yarn.RopeYarn, "attention_scale", 1.0)


@fault("loading", subject="gguf yarn", check="llama.cpp", at="logits[t=")
def yarn_scaling_of_a_gguf_file_dropped(patch: Patch) -> None:
    """The scaling in a GGUF file's metadata is not applied, as transformers does not either."""
    right = gguf_llama.rope_scaling.read_rope
    patch.setattr(
        rope_scaling,
        "read_rope",
        lambda *given: {
            "kind": "rope", "base": right(*given)["base"], "layout": right(*given)["layout"],
        },
    )  # fmt: skip


@fault("loading", subject="gguf llama3", check="llama.cpp", at="logits…")
@replacing(rope_scaling, "read_rope")
def llama3_factors_of_a_gguf_file_dropped(right: Any, metadata: Any, *given: Any) -> dict[str, Any]:
    """The tensor of frequency factors is skipped."""
    metadata.tables = {}
    return right(metadata, *given)


@fault("loading", subject="gguf", check="transformers", at=Q)
def gguf_rows_taken_for_halves(patch: Patch) -> None:
    """The rows of a GGUF Llama are in pairs, and are rotated as halves."""
    patch.setattr(gguf_llama.LlamaArchitecture, "layout", "halves")


@fault("loading", subject="gguf", check="llama.cpp", at="logits[t=")
def gguf_rows_taken_for_halves_by_llamacpp(patch: Patch) -> None:
    """The same, as llama.cpp's choices show it."""
    patch.setattr(gguf_llama.LlamaArchitecture, "layout", "halves")


@fault("loading", subject="llama", check="llama.cpp", at="logits[t=")
@replacing(writing, "in_layout")
def rows_not_permuted_on_export(right: Any, config: Any, weights: Any, layout: str) -> Any:
    """A GGUF export keeps the rows in halves, where its readers expect pairs."""
    return right(config, weights, layout)[0], weights


@fault("loading", subject="mistral", check="transformers", at="mask")
@replacing(mistral.MistralFamily, "choices")
def window_dropped(right: Any, self: Any, keys: Any) -> Any:
    """Every layer looks back at the whole text, whatever the sliding window is."""
    return right(self, keys) | {"mask": "causal"}


@fault("loading", subject="mistral far window", check="transformers", at="mask")
def far_window_dropped(patch: Patch) -> None:
    """The same of a window that is longer than the text that most checks read."""
    window_dropped(patch)


@fault("loading", subject="mistral", check="transformers", at="mask")
@replacing(mistral.MistralFamily, "choices")
def window_one_token_longer(right: Any, self: Any, keys: Any) -> dict[str, Any]:
    """The window counts the tokens before the current one, and not with it."""
    found = right(self, keys)
    return found | {"mask": found["mask"] | {"size": found["mask"]["size"] + 1}}


@fault("loading", subject="llama eps", check="transformers", at="embedded … blocks.0.attn_norm.out")
@replacing(llama.LlamaFamily, "choices")
def eps_of_the_file_ignored(right: Any, self: Any, keys: Any) -> Any:
    """The norms have the usual ε instead of the file's."""
    return right(self, keys) | {"norm": {"kind": "rms_norm", "eps": 1e-6}}


@fault("loading", subject="gpt2", check="transformers", at="blocks.0.mlp.act")
def gelu_new_read_as_gelu(patch: Patch) -> None:
    """The tanh form of GELU is taken for the exact one."""
    patch.setitem(families.ACTIVATIONS, "gelu_new", "gelu")


@fault("loading", subject="bloom", check="transformers", at="blocks.0.attn.q … pattern")
@replacing(alibi.Alibi, "bias_factors")
def alibi_without_the_last_factor(right: Any, self: Any, heads: Any) -> Any:
    """The factors of ALiBi begin at 1 and not at the first power."""
    return right(self, heads) * 2 ** (8 / heads)


@fault("loading", subject="gpt2", check="transformers", at="position_rows")
def positions_offset_by_one(patch: Patch) -> None:
    """Learned positions begin at the second row, as OPT stores them two rows later."""
    patch.setattr(learned.Learned, "row_ids", lambda self, places: np.minimum(places + 1, 63))


@fault("loading", subject="llama untied", check="transformers", at="blocks.0.attn.q_proj.bias")
def attention_bias_flag_ignored(patch: Patch) -> None:
    """A Llama with biases of attention is computed without them."""
    right = huggingface_reading._add_prefixes
    patch.setattr(
        huggingface_reading,
        "_add_prefixes",
        lambda family, tensors: {
            name: tensor
            for name, tensor in right(family, tensors).items()
            if not (name.endswith("_proj.bias") and "self_attn" in name)
        },
    )
    choices = llama.LlamaFamily.choices
    patch.setattr(llama.LlamaFamily, "choices", lambda self, keys: choices(self, keys) | {"biases": []})
