"""Qwen2: Llama with biases on queries, keys and values, and a window that the later layers may have.

Yang et al. 2024, arXiv:2407.10671. Here all layers have one mask, so a window is read where it is in all of
them or in none.
"""

from typing import Any, ClassVar

from pellucid.base.errors import ConfigError, show
from pellucid.config import ModelConfig
from pellucid.formats.huggingface.families.llama import DEFAULTS
from pellucid.formats.huggingface.families.mistral import MistralFamily
from pellucid.formats.huggingface.keys import Keys

FULL, SLIDING = "full_attention", "sliding_attention"


class Qwen2Family(MistralFamily):
    architectures = ("Qwen2ForCausalLM", "Qwen2Model")
    defaults = {  # noqa: RUF012
        **DEFAULTS,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "layer_types": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    usual = {**MistralFamily.usual, "use_mrope": (False,)}  # noqa: RUF012
    always_biased: ClassVar[tuple[str, ...]] = ("qkv",)

    def choices(self, keys: Keys) -> dict[str, Any]:
        choices = super().choices(keys)
        return choices if _slides(keys) else choices | {"mask": "causal"}

    def keys(self, config: ModelConfig) -> dict[str, Any]:
        keys = super().keys(config)
        slides = keys["sliding_window"] is not None
        first = 0 if slides else config.n_layer
        return keys | {"use_sliding_window": slides, "max_window_layers": first}


def _slides(keys: Keys) -> bool:
    """Returns whether the layers look through the window: all of them, or none."""
    layers = keys.size("num_hidden_layers")
    given = keys.flag("use_sliding_window") and keys["sliding_window"] is not None
    types = keys["layer_types"]
    if types is None:
        full = min(keys.size("max_window_layers", smallest=0), layers) if given else layers
        some = [FULL] * (full > 0) + [SLIDING] * (full < layers)
    elif not isinstance(types, list) or len(types) != layers or not all(t in (FULL, SLIDING) for t in types):
        raise ConfigError(
            f"layer_types must be a list that has {FULL!r} or {SLIDING!r} for each of the {layers} layers, "
            f"not {show(types)}."
        )
    else:
        some = types
    if FULL in some and SLIDING in some:
        raise ConfigError(
            "some layers look through the sliding_window and some at everything (max_window_layers and "
            "layer_types say which), and here all layers have one mask."
        )
    if SLIDING in some and not given:
        raise ConfigError(f"layer_types has {SLIDING!r}, and use_sliding_window or sliding_window says no.")
    return SLIDING in some
