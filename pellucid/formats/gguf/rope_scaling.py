"""RoPE scaling in GGUF.

`rope.scaling.type` is linear or yarn, with settings under other keys. Llama 3's scaling has no keys: the file
holds a tensor with one factor per pair of channels, which divides the pair's frequency. The settings behind
the factors are not in the file; so where Llama 3's own settings give the same factors they are taken, and
otherwise the file is refused.

llama.cpp supports YaRN only with the paper's β of 32 and 1; its attention scale is `attn_factor`, a multiple
of the paper's 0.1 ln(factor) + 1.
"""

import math
from typing import Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import not_one_of
from pellucid.base.files import need
from pellucid.config import ModelConfig
from pellucid.formats.gguf.container import Metadata, Value, require_support
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from pellucid.parts.positions.rope_yarn import RopeYarn

FACTORS = "rope_freqs.weight"
ROUNDING = 1e-5
"""Other programs compute the factors in float32; a frequency's rounding error grows by up to the factor."""

FLOAT32_END = 2.0**127

HARMLESS: dict[str, Value] = {
    "rope.scale_linear": 1.0,
    "rope.scaling.type": "none",
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}


def read_rope(metadata: Metadata, d_head: int, context: int, layout: str) -> dict[str, Any]:
    """Returns the positions of a file, as plain data of the config."""
    rope = {"kind": "rope", "base": metadata.number("rope.freq_base", 10_000.0), "layout": layout}
    metadata.boolean("rope.scaling.finetuned", False)  # a note that changes nothing
    if (factors := metadata.tables.get(FACTORS)) is not None:
        return _llama3(rope, factors, d_head)
    scaling = metadata.text("rope.scaling.type", "linear")
    match scaling:
        case "none":
            return rope
        case "linear":
            if "rope.scaling.factor" in metadata:
                return rope | {"kind": "rope_linear", "factor": metadata.number("rope.scaling.factor")}
            old = metadata.number("rope.scale_linear", 1.0)  # the old key of the factor
            return rope if old == 1 else rope | {"kind": "rope_linear", "factor": old}
        case "yarn":
            return rope | _yarn(metadata, context)
    require_support(
        False, not_one_of(f"{metadata.prefix}rope.scaling.type", scaling, ["none", "linear", "yarn"])
    )
    raise AssertionError


def rope_metadata(config: ModelConfig) -> dict[str, Value]:
    """Returns the metadata of a config's RoPE, as far as GGUF has keys for it."""
    rope = config.positions
    return {"rope.freq_base": rope.base, **_scaling(rope)} if isinstance(rope, Rope) else {}


def _scaling(rope: Rope) -> dict[str, Value]:
    if isinstance(rope, RopeLinear):
        return {"rope.scaling.type": "linear", "rope.scaling.factor": rope.factor}
    if isinstance(rope, RopeYarn):
        scale = {"rope.scaling.attn_factor": rope.attention_factor / _paper_scale(rope.factor)}
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": rope.factor,
            "rope.scaling.original_context_length": rope.original_context,
            **(scale if rope.attention_factor else {}),
        }
    return {}


def rope_factors(config: ModelConfig) -> dict[str, Array]:
    """Returns the tensor of frequency factors, for Llama 3's scaling."""
    rope = config.positions
    if not isinstance(rope, RopeLlama3):
        return {}
    with np.errstate(all="ignore"):
        return {FACTORS: _factors(rope, config.d_head).astype(np.float32)}


def _factors(rope: RopeLlama3, d_head: int) -> Array:
    """Returns by how much the frequency of each pair is divided [D/2]."""
    return np.asarray(Rope(rope.base).frequencies(d_head) / rope.frequencies(d_head))


def _llama3(rope: dict[str, Any], factors: Array, d_head: int) -> dict[str, Any]:
    shape = (d_head // 2,)
    need(factors.shape == shape, f"the tensor {FACTORS} has the shape {factors.shape}, not {shape}")
    rope = rope | {"kind": "rope_llama3", "factor": float(str(factors.max()))}
    good = 1 <= rope["factor"] < math.inf and 1 <= rope["base"] < math.inf
    if good:
        with np.errstate(all="ignore"):
            wanted = _factors(RopeLlama3(rope["base"], factor=rope["factor"]), d_head)
            good = bool(np.all(np.isfinite(wanted) & (np.abs(factors - wanted) <= ROUNDING * wanted)))
    require_support(
        good,
        f"its tensor {FACTORS} does not have the factors of Llama 3's settings (original context 8192, "
        "low_freq_factor 1, high_freq_factor 4), and the file does not say which settings made them",
    )
    return rope


def _yarn(metadata: Metadata, context: int) -> dict[str, Any]:
    factor = metadata.number("rope.scaling.factor", 1.0)
    yarn = {
        "kind": "rope_yarn",
        "factor": factor,
        "original_context": metadata.integer("rope.scaling.original_context_length", context),
    }
    if "rope.scaling.attn_factor" in metadata and 1 <= factor < math.inf:
        multiple = metadata.number("rope.scaling.attn_factor")
        require_support(
            multiple > 0, f"{metadata.prefix}rope.scaling.attn_factor = {multiple:g} must be positive"
        )
        yarn["attention_factor"] = _shortest_decimal(multiple, _paper_scale(factor))
    return yarn


def _paper_scale(factor: float) -> float:
    return 0.1 * math.log(factor) + 1


def _shortest_decimal(multiple: float, unit: float) -> float:
    """Returns the shortest decimal that is this multiple of the unit in float32.

    >>> _shortest_decimal(float(np.float32(1.7 / 1.2)), 1.2)
    1.7
    """
    exact = multiple * unit
    if not abs(multiple) < FLOAT32_END:
        return exact
    decimals = (float(f"{exact:.{digits}g}") for digits in range(1, 17))
    same = (short for short in decimals if np.float32(short / unit) == np.float32(multiple))
    return next(same, exact)
