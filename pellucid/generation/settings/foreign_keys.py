"""The names that other libraries have for our settings: a model's own generation settings are read under
them, and where a person types one out of habit, the message says what to write here.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pellucid.base.errors import FileError, UsageError, show
from pellucid.generation.settings.table import SETTINGS

HABITS: dict[str, str] = {
    "num_beams": "beams",
    "n_beams": "beams",
    "best_of": "beams",
    "num_return_sequences": "n",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "num_predict": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "stop_strings": "stop",
    "stop_token_ids": "stop_ids",
    "eos_token_id": "stop_ids",
    "suppress_tokens": "banned_tokens",
    "temp": "temperature",
    "repeat_penalty": "repetition_penalty",
    "guided_regex": "regex",
    "guided_json": "json_schema",
    "random_seed": "seed",
}
"""Settings that have another name here and mean the same."""
EXPLANATIONS: dict[str, str] = {
    "do_sample": "do_sample has no setting here: temperature=0 is greedy, and temperature=1 samples from the "
    "model's own probabilities.",
    "max_length": "max_length counts the prompt as well: write max_new_tokens, which counts the new tokens.",
    "min_length": "min_length counts the prompt as well: write min_new_tokens, which counts the new tokens.",
    "forced_bos_token_id": "forced_bos_token_id is of encoder-decoder models: write forced_tokens=[ID] for "
    "the first new token.",
    "bad_words_ids": "bad_words_ids has no setting here: write banned_tokens=[ID, …] for single tokens.",
}
"""Settings that mean something else, or nothing, here."""


def suggest_key(key: Any, value: Any) -> str:
    """Returns what to write in place of another library's key, "" where it is not one.

    >>> suggest_key("num_beams", 4)
    'num_beams is called beams here: write beams=4.'
    """
    if key in EXPLANATIONS:
        return EXPLANATIONS[key]
    name = HABITS.get(key) if isinstance(key, str) else None
    return f"{key} is called {name} here: write {name}={show(value)}." if name else ""


def read_generation(settings: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Returns a model's generation settings, which have Hugging Face's keys, as settings of ours.

    Those that need sampling count only where the model is to be sampled: unless `do_sample` is false. Other
    keys of theirs are not read: how long a text is, which the caller says, and what only an encoder-decoder
    has; nor are our settings that `without` names. A value that cannot be is refused.

    >>> read_generation({"do_sample": False, "temperature": 0.6, "eos_token_id": 2})
    {'temperature': 0.0, 'stop_ids': (2,)}
    """
    found = {}
    for name, value in _translate(settings).items():
        if name not in without:
            try:
                found[name] = SETTINGS[name].read(value)
            except UsageError as refusal:
                raise FileError(
                    f"the model's own generation settings cannot be: {str(refusal).rstrip('.')}. "
                    f"Set {name} yourself."
                ) from None
    return found


def _translate(settings: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in settings.items() if value is not None}
    is_sampled = given.get("do_sample", any(key in given for key in SAMPLED)) is not False
    found: dict[str, Any] = {}
    if "do_sample" in given or is_sampled:
        found["temperature"] = 1.0 if is_sampled else 0.0
    for key, (name, convert) in (SAMPLED if is_sampled else BEAMS).items():
        if key in given:
            found[name] = convert(given[key])
    if found.get("beams", 1) == 1:
        found = {
            name: value for name, value in found.items() if name not in ("length_penalty", "early_stopping")
        }
    for key, (name, convert) in ALWAYS.items():
        if key in given:
            found[name] = convert(given[key])
    return found


def _same(value: Any) -> Any:
    return value


def _count(value: Any) -> Any:
    """Returns a top-k, of which some files say with −1 that there is none."""
    return 0 if value == -1 else value


def _stopping(value: Any) -> Any:
    """Returns whether beam search stops early; "never" says how long it goes on otherwise."""
    return False if value == "never" else value


Rows = dict[str, tuple[str, Callable[[Any], Any]]]
SAMPLED: Rows = {
    "temperature": ("temperature", _same),
    "top_k": ("top_k", _count),
    "top_p": ("top_p", _same),
    "min_p": ("min_p", _same),
    "typical_p": ("typical_p", _same),
}
"""Their key, our setting and how the value is converted: where the model is sampled."""
BEAMS: Rows = {
    "num_beams": ("beams", _same),
    "length_penalty": ("length_penalty", _same),
    "early_stopping": ("early_stopping", _stopping),
}
"""Where it is not."""
ALWAYS: Rows = {
    "repetition_penalty": ("repetition_penalty", _same),
    "presence_penalty": ("presence_penalty", _same),
    "frequency_penalty": ("frequency_penalty", _same),
    "min_new_tokens": ("min_new_tokens", _same),
    "stop_strings": ("stop", _same),
    "eos_token_id": ("stop_ids", _same),
    "suppress_tokens": ("banned_tokens", _same),
}
