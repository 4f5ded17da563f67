"""`config.json` by allow-list: every key is understood, has its usual value, is harmless, or is refused.

A key that nobody here knows may change the arithmetic, and a model computed without it would be wrong without
a word. So an unknown key is an error that names it.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

from pellucid.errors import ConfigError, did_you_mean, show

TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")

_KERNELS = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
USUAL: dict[str, tuple[Any, ...]] = {
    "_attn_implementation": _KERNELS,
    "add_cross_attention": (False,),
    "attn_implementation": _KERNELS,
    "chunk_size_feed_forward": (0,),
    "cross_attention_hidden_size": (None,),
    "is_encoder_decoder": (False,),
    "layer_types": (None,),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "sliding_window": (None,),
    "tie_encoder_decoder": (False,),
    "torchscript": (False,),
    "use_bfloat16": (False,),
}
"""Keys of every family that change the arithmetic in ways that are not here, but for these values."""

_NAMES = """
_attn_implementation_autoset _commit_hash _flash_attn_2_enabled _name_or_path _num_labels bad_words_ids
begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample dtype early_stopping
encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task forced_bos_token_id
forced_eos_token_id gradient_checkpointing id2label initializer_range is_decoder label2id length_penalty
max_length min_length model_max_length no_repeat_ngram_size num_beam_groups num_beams num_labels
num_return_sequences output_attentions output_hidden_states output_past output_scores prefix problem_type
remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype
transformers.js_config transformers_version typical_p unk_token_id unsloth_fixed unsloth_version use_cache
use_return_dict
"""
HARMLESS = frozenset(_NAMES.split())
"""Keys of every family that leave the logits as they are: labels, training, sampling, types in memory."""

REASONS = {
    "auto_map": "it asks for code of its own to be run, and no file may do that",
    "quantization": "the weights are quantised in a form that is not read",
    "quantization_config": "the weights are quantised in a form that is not read",
}


class Keys:
    """The understood keys of a `config.json`, each asked for by the type that it must have."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def size(self, name: str, smallest: int = 1) -> int:
        value = self.values[name]
        if type(value) is not int or value < smallest:
            raise ConfigError(f"{name} must be a whole number ≥ {smallest}, not {show(value)}.")
        return value

    def size_or(self, name: str, otherwise: int) -> int:
        return otherwise if self.values[name] is None else self.size(name)

    def number(self, name: str) -> float:
        return number(name, self.values[name])

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {show(value)}.")
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be text, not {show(value)}.")
        return value

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def number(name: str, value: Any) -> float:
    """A finite number that is not below 0."""
    if type(value) not in (int, float) or not 0 <= value < math.inf or value > 1e300:
        raise ConfigError(f"{name} must be a finite number that is not below 0, not {show(value)}.")
    return float(value)


def understood(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    spellings: Mapping[str, str],
    usual: Mapping[str, tuple[Any, ...]],
    harmless: Collection[str],
) -> Keys:
    """The keys that a family understands, with its defaults where the file is silent."""
    values = dict(defaults)
    seen: set[str] = set()
    for written, value in given.items():
        key = spellings.get(written, written)
        if key in defaults:
            if key in seen and values[key] != value:
                raise ConfigError(f"{written!r} and {key!r} are two spellings and say different things.")
            values[key] = value
            seen.add(key)
        elif key in usual:
            if not any(type(value) is type(other) and value == other for other in usual[key]):
                reason = REASONS.get(key, "that changes the arithmetic in a way that is not here")
                works = " or ".join(map(repr, usual[key]))
                raise ConfigError(f"{key!r} is {show(value)}: {reason}. It can be {works}.")
        elif key not in harmless:
            reason = REASONS.get(key, "as far as Pellucid knows, a field that changes the arithmetic")
            raise ConfigError(f"{show(key)} is not understood: {reason}.{did_you_mean(key[:80], defaults)}")
    return Keys(values)
