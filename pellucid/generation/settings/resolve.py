"""The settings of a request from their three origins: the model's own, a preset, and what the caller gives.

    resolved = resolve_sampling(model.pretrained.generation, "balanced", {"seed": 7})
    print(describe(*resolved))

What is given goes before the preset, and the preset before the model's own settings, of which those are
omitted that do not go with the others.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pellucid.base.errors import UsageError, unknown
from pellucid.generation.settings.conflicts import drop_conflicts
from pellucid.generation.settings.foreign_keys import read_generation
from pellucid.generation.settings.sampling import DEFAULTS, Sampling, read_settings
from pellucid.generation.settings.table import SETTINGS


class SamplingPreset(NamedTuple):
    """Settings under one name, and what they are for."""

    purpose: str
    settings: Mapping[str, Any]


_PLAIN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0, "beams": 1}
PRESETS: dict[str, SamplingPreset] = {
    "greedy": SamplingPreset("always the most probable token", {"temperature": 0.0, **_PLAIN}),
    "precise": SamplingPreset("answers, facts, code", {"temperature": 0.3, **_PLAIN, "top_p": 0.9}),
    "balanced": SamplingPreset(
        "conversation, explanations",
        {"temperature": 0.7, **_PLAIN, "top_p": 0.95},
    ),
    "creative": SamplingPreset(
        "stories, ideas", {"temperature": 1.0, **_PLAIN, "min_p": 0.05, "repetition_penalty": 1.05}
    ),
}
"""Each states every setting that shapes the probabilities, so that it means the same with every model."""


class ResolvedSampling(NamedTuple):
    """Settings, and where each that is not the default came from."""

    sampling: Sampling
    origins: dict[str, str]


def resolve_sampling(
    generation: Mapping[str, Any] | None = None,
    preset: str | None = None,
    given: Mapping[str, Any] | None = None,
    origin: str = "given",
) -> ResolvedSampling:
    """Returns the settings of a request; `generation` are the model's own, under Hugging Face's keys.

    >>> resolve_sampling({"temperature": 0.6, "top_k": 40}, None, {"top_k": 0}).sampling
    Sampling(temperature=0.6)
    """
    chosen = find_preset(preset).settings if preset is not None else {}
    table = read_settings(given or {})
    asked = {**chosen, **table}
    own = drop_conflicts(read_generation(generation or {}, without=asked), asked, DEFAULTS)
    origins = (
        dict.fromkeys(own, "model") | dict.fromkeys(chosen, f"preset {preset}") | dict.fromkeys(table, origin)
    )
    return ResolvedSampling(Sampling(**own, **asked), origins)


def find_preset(name: Any) -> SamplingPreset:
    """Returns the preset of that name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(unknown("preset", name, PRESETS))
    return PRESETS[name]


def describe(sampling: Sampling, origins: Mapping[str, str] | None = None) -> str:
    """Returns every setting in full, a line for each origin.

    >>> print(describe(*resolve_sampling(None, "greedy", {"seed": 7})).partition("given")[0])
    preset greedy: temperature 0, top_k 0, top_p 1, min_p 0, typical_p 1, repetition_penalty 1, beams 1
    <BLANKLINE>
    """
    known = dict(origins or {})
    groups: dict[str, list[str]] = {origin: [] for origin in known.values()}
    for name in SETTINGS:
        usual = "default" if getattr(sampling, name) == DEFAULTS[name] else "given"
        groups.setdefault(known.get(name, usual), []).append(
            f"{name} {format_value(getattr(sampling, name))}"
        )
    groups["default"] = groups.pop("default", [])
    return "\n".join(f"{origin}: {', '.join(entries)}" for origin, entries in groups.items() if entries)


def format_value(value: Any) -> str:
    """Returns the value of a setting as a person reads it.

    >>> format_value(0.8), format_value(()), format_value({262: -2.5})
    ('0.8', 'none', '262=-2.5')
    """
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, Mapping):
        return " ".join(f"{id}={format_value(bias)}" for id, bias in value.items())
    if isinstance(value, tuple):
        return " ".join(map(format_value, value))
    return repr(value) if isinstance(value, str) else str(value)
