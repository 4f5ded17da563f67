"""`config.json` by allow-list: every key is supported, has its usual value, is harmless, or is refused.

An unknown key may change the arithmetic, and a model computed without it would be silently wrong. So it is an
error that names the key. RoPE has two spellings: old files have `rope_theta` and `rope_scaling`, new ones
`rope_parameters`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pellucid.base.errors import ConfigError, show
from pellucid.parts.positions import PositionsConfig

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
"""Keys of every family that would change the arithmetic in unsupported ways, except at these values."""

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
"""Keys of every family that do not change the logits: labels, training, sampling, dtypes in memory."""

REASONS = {
    "auto_map": "it runs code from the model's folder, which is never done",
    "quantization": "this quantization of the weights is not supported",
    "quantization_config": "this quantization of the weights is not supported",
}


class Keys:
    """The supported keys of a `config.json`, each checked to have its type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def size(self, name: str, smallest: int = 1) -> int:
        value = self.values[name]
        if type(value) is not int or value < smallest:
            raise ConfigError(f"{name} must be an integer ≥ {smallest}, not {show(value)}.")
        return value

    def size_or(self, name: str, otherwise: int) -> int:
        return otherwise if self.values[name] is None else self.size(name)

    def number(self, name: str) -> float:
        return read_number(name, self.values[name])

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {show(value)}.")
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be a string, not {show(value)}.")
        return value

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_number(name: str, value: Any) -> float:
    """Returns a finite number ≥ 0."""
    if type(value) not in (int, float) or not 0 <= value < math.inf or value > 1e300:
        raise ConfigError(f"{name} must be a finite number ≥ 0, not {show(value)}.")
    return float(value)


def select_keys(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    spellings: Mapping[str, str],
    usual: Mapping[str, tuple[Any, ...]],
    harmless: Collection[str],
) -> Keys:
    """Returns the keys that a family supports, with its defaults; raises for any key that is not harmless."""
    values = dict(defaults)
    seen: set[str] = set()
    for written, value in given.items():
        key = spellings.get(written, written)
        if key in defaults:
            if key in seen and values[key] != value:
                raise ConfigError(
                    f"{written!r} and {key!r} are two spellings of one key with different values."
                )
            values[key] = value
            seen.add(key)
        elif key in usual:
            if not any(type(value) is type(other) and value == other for other in usual[key]):
                reason = REASONS.get(key, "that changes the arithmetic in an unsupported way")
                works = " or ".join(map(repr, usual[key]))
                raise ConfigError(f"{key!r} is {show(value)}: {reason}. It must be {works}.")
        elif key not in harmless:
            reason = REASONS.get(key, "it may change the arithmetic")
            raise ConfigError(f"{show(key)} is not supported: {reason}.")
    return Keys(values)


# ---- RoPE

ROPE_BASE = 10_000.0
CONTEXT = "original_max_position_embeddings"
ROPE_NAMES = {CONTEXT: "original_context"}
"""Settings with another name here."""


@dataclass(frozen=True)
class RopeScaling:
    """Our kind for one of their types, and the keys of its settings."""

    kind: str
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    """Optional: absent, null and 0 mean the paper's value, there and here."""


ROPE_SCALINGS = {
    "default": RopeScaling("rope"),
    "linear": RopeScaling("rope_linear", ("factor",)),
    "llama3": RopeScaling("rope_llama3", ("factor", "low_freq_factor", "high_freq_factor", CONTEXT)),
    "yarn": RopeScaling("rope_yarn", ("factor", CONTEXT), ("beta_fast", "beta_slow", "attention_factor")),
}
DEPENDS_ON_LENGTH = "its angles depend on the length of the text, so cached keys would be wrong"
ROPE_REASONS = {"dynamic": DEPENDS_ON_LENGTH, "longrope": DEPENDS_ON_LENGTH}
ROPE_USUAL = {"partial_rotary_factor": 1, "truncate": True, "mscale": None, "mscale_all_dim": None}
"""Settings that would change the angles or scores in unsupported ways, except at these values."""


def read_rope(keys: Keys) -> dict[str, Any]:
    """Returns our positions, as plain data; raises where two spellings differ."""
    bases = [] if keys["rope_theta"] is None else [read_number("rope_theta", keys["rope_theta"])]
    found: list[dict[str, Any]] = []
    for name in ("rope_parameters", "rope_scaling"):
        table = keys[name]
        if table is None or table == {}:
            continue
        if not isinstance(table, dict):
            raise ConfigError(f"{name} must be a table, not {show(table)}.")
        found.append(_read_scaling(name, table, keys))
        if table.get("rope_theta") is not None:
            bases.append(read_number("rope_theta", table["rope_theta"]))
    if len(set(bases)) > 1:
        raise ConfigError(f"rope_theta is given twice, as {' and as '.join(map(str, bases))}.")
    if any(other != found[0] for other in found):
        raise ConfigError("rope_parameters and rope_scaling differ.")
    return (found or [{"kind": "rope"}])[0] | {"base": (bases or [ROPE_BASE])[0], "layout": "halves"}


def write_rope(positions: PositionsConfig) -> dict[str, Any]:
    """Returns their table for our positions; for a kind that they do not have, the plain one."""
    types = [type for type, scaling in ROPE_SCALINGS.items() if scaling.kind == positions.kind]
    type = (types or ["default"])[0]
    table: dict[str, Any] = {"rope_type": type, "rope_theta": float(getattr(positions, "base", ROPE_BASE))}
    scaling = ROPE_SCALINGS[type]
    for key in (*scaling.needs, *scaling.may):
        value = getattr(positions, ROPE_NAMES.get(key, key))
        if value or key in scaling.needs:
            table[key] = value
    return table


def _read_scaling(name: str, table: dict[str, Any], keys: Keys) -> dict[str, Any]:
    scaling = _find_scaling(name, table)
    for key, value in table.items():
        known = key in ("rope_type", "type", "rope_theta", *scaling.needs, *scaling.may)
        if not known and not (key in ROPE_USUAL and value == ROPE_USUAL[key]):
            raise ConfigError(f"{name} has {show(key)}: {show(value)}, which is not supported.")
    found: dict[str, Any] = {"kind": scaling.kind}
    for key in scaling.needs:
        if key == CONTEXT:
            size = Keys({CONTEXT: table.get(CONTEXT, keys["max_position_embeddings"])}).size(CONTEXT)
            found[ROPE_NAMES[CONTEXT]] = size
        elif key in table:
            found[key] = read_number(f"{key} of {name}", table[key])
        else:
            raise ConfigError(f"{name} of the kind {scaling.kind} needs {key}.")
    for key in scaling.may:
        if table.get(key) is not None:
            value = read_number(f"{key} of {name}", table[key])
            if not value and key == "attention_factor":
                raise ConfigError(f"attention_factor of {name} is 0, which makes every score 0.")
            if value:
                found[key] = value
    return found


def _find_scaling(name: str, table: dict[str, Any]) -> RopeScaling:
    types = {key: table[key] for key in ("rope_type", "type") if key in table} or {"type": "default"}
    for key, type in types.items():
        if not isinstance(type, str) or type not in ROPE_SCALINGS:
            reason = (
                ROPE_REASONS.get(type, "this scaling is not supported")
                if isinstance(type, str)
                else "it is not a name"
            )
            raise ConfigError(
                f"{name} has the {key} {show(type)}: {reason}; have {', '.join(ROPE_SCALINGS)}."
            )
    if len(set(types.values())) > 1:
        raise ConfigError(f"{name} has the rope_type and the type {' and '.join(types.values())}.")
    return ROPE_SCALINGS[type]
