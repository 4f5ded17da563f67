"""How GGUF says that rotary positions are stretched.

`rope.scaling.type` names linear or yarn, and other facts their numbers. Llama 3's way has no facts: the file
holds a tensor with one factor for each pair of channels, by which the pair turns slower. The settings behind
the factors are not in the file, so they are those of Llama 3 where these give the same factors, and else the
file is refused.

llama.cpp knows YaRN with the paper's 32 and 1 turns alone, and says how sharp it is by `attn_factor`, a
multiple of the paper's 0.1 ln(factor) + 1.
"""

import math
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.dtypes import Array
from pellucid.files import need
from pellucid.interop.gguf.container import Value, shown
from pellucid.interop.gguf.facts import Facts
from pellucid.interop.gguf.opening import support
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from pellucid.parts.positions.rope_yarn import RopeYarn

FACTORS = "rope_freqs.weight"
ROUNDING = 1e-5
"""Others compute the factors in float32, and a frequency's rounding grows by up to the factor itself."""

FLOAT32_END = 2.0**127

HARMLESS: dict[str, Value] = {
    "rope.scale_linear": 1.0,
    "rope.scaling.type": "none",
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}


def read_rope(facts: Facts, d_head: int, context: int, layout: str) -> dict[str, Any]:
    """The positions that a file's facts and its factors say."""
    rope = {"kind": "rope", "base": facts.number("rope.freq_base", 10_000.0), "layout": layout}
    facts.truth("rope.scaling.finetuned", False)  # somebody's note
    if (factors := facts.tables.get(FACTORS)) is not None:
        return _llama3(rope, factors, d_head)
    scaling = facts.text("rope.scaling.type", "linear")
    match scaling:
        case "none":
            return rope
        case "linear":
            if "rope.scaling.factor" in facts:
                return rope | {"kind": "rope_linear", "factor": facts.number("rope.scaling.factor")}
            old = facts.number("rope.scale_linear", 1.0)  # what the factor was called before
            return rope if old == 1 else rope | {"kind": "rope_linear", "factor": old}
        case "yarn":
            return rope | _yarn(facts, context)
    support(False, f"it says {facts.prefix}rope.scaling.type = {shown(scaling)}; have none, linear, yarn")
    raise AssertionError


def rope_facts(config: ModelConfig) -> dict[str, Value]:
    """The facts that say a config's rotary positions, as far as facts can."""
    rope = config.positions
    return {"rope.freq_base": rope.base, **_scaling(rope)} if isinstance(rope, Rope) else {}


def _scaling(rope: Rope) -> dict[str, Value]:
    if isinstance(rope, RopeLinear):
        return {"rope.scaling.type": "linear", "rope.scaling.factor": rope.factor}
    if isinstance(rope, RopeYarn):
        sharp = {"rope.scaling.attn_factor": rope.attention_factor / _paper(rope.factor)}
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": rope.factor,
            "rope.scaling.original_context_length": rope.original_context,
            **(sharp if rope.attention_factor else {}),
        }
    return {}


def factors_of(config: ModelConfig) -> dict[str, Array]:
    """The tensor that says how each pair is slowed, for Llama 3's positions."""
    rope = config.positions
    if not isinstance(rope, RopeLlama3):
        return {}
    with np.errstate(all="ignore"):
        return {FACTORS: _factors(rope, config.d_head).astype(np.float32)}


def _factors(rope: RopeLlama3, d_head: int) -> Array:
    """How many times slower each pair turns [D/2]."""
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
    support(
        good,
        f"its tensor {FACTORS} slows the pairs of channels in a way that is not Llama 3's (within 8192 "
        "positions, those that turn less than once by a factor and those that turn more than 4 times not at "
        "all), and the file does not say in which",
    )
    return rope


def _yarn(facts: Facts, context: int) -> dict[str, Any]:
    factor = facts.number("rope.scaling.factor", 1.0)
    yarn = {
        "kind": "rope_yarn",
        "factor": factor,
        "original_context": facts.whole("rope.scaling.original_context_length", context),
    }
    if "rope.scaling.attn_factor" in facts and 1 <= factor < math.inf:
        multiple = facts.number("rope.scaling.attn_factor")
        support(multiple > 0, f"{facts.prefix}rope.scaling.attn_factor = {multiple:g} leaves no scores")
        yarn["attention_factor"] = _meant(multiple, _paper(factor))
    return yarn


def _paper(factor: float) -> float:
    return 0.1 * math.log(factor) + 1


def _meant(multiple: float, unit: float) -> float:
    """The shortest decimal that is this multiple of the unit, as float32 has it.

    >>> _meant(float(np.float32(1.7 / 1.2)), 1.2)
    1.7
    """
    exact = multiple * unit
    if not abs(multiple) < FLOAT32_END:
        return exact
    decimals = (float(f"{exact:.{digits}g}") for digits in range(1, 17))
    same = (short for short in decimals if np.float32(short / unit) == np.float32(multiple))
    return next(same, exact)
