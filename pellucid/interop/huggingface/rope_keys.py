"""RoPE in `config.json`: old files say `rope_theta` and `rope_scaling`, new ones `rope_parameters`."""

from dataclasses import dataclass
from typing import Any

from pellucid.errors import ConfigError, show
from pellucid.interop.huggingface.keys import Keys, number
from pellucid.parts.positions import PositionsConfig

BASE = 10_000.0
CONTEXT = "original_max_position_embeddings"
OURS = {CONTEXT: "original_context"}
"""Settings that are not called the same here."""


@dataclass(frozen=True)
class Scaling:
    """Our kind for one of their types, and its settings in their words."""

    kind: str
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    """Where one of these is absent, null or 0, theirs is the paper's, and so is ours."""


SCALINGS = {
    "default": Scaling("rope"),
    "linear": Scaling("rope_linear", ("factor",)),
    "llama3": Scaling("rope_llama3", ("factor", "low_freq_factor", "high_freq_factor", CONTEXT)),
    "yarn": Scaling("rope_yarn", ("factor", CONTEXT), ("beta_fast", "beta_slow", "attention_factor")),
}
LENGTH = "its angles depend on the length of the text, so that what a cache has kept would be wrong"
REASONS = {"dynamic": LENGTH, "longrope": LENGTH}
USUAL = {"partial_rotary_factor": 1, "truncate": True, "mscale": None, "mscale_all_dim": None}
"""Settings that would change the angles or the scores in ways that are not here, but for these values."""


def rope(keys: Keys) -> dict[str, Any]:
    """Our positions for what is said in every place; two places that differ are refused."""
    bases = [] if keys["rope_theta"] is None else [number("rope_theta", keys["rope_theta"])]
    said: list[dict[str, Any]] = []
    for name in ("rope_parameters", "rope_scaling"):
        table = keys[name]
        if table is None or table == {}:
            continue
        if not isinstance(table, dict):
            raise ConfigError(f"{name} must be a table, not {show(table)}.")
        said.append(_scaled(name, table, keys))
        if table.get("rope_theta") is not None:
            bases.append(number("rope_theta", table["rope_theta"]))
    if len(set(bases)) > 1:
        raise ConfigError(f"rope_theta is given twice, as {' and as '.join(map(str, bases))}.")
    if any(other != said[0] for other in said):
        raise ConfigError("rope_parameters and rope_scaling say different things.")
    return (said or [{"kind": "rope"}])[0] | {"base": (bases or [BASE])[0], "layout": "halves"}


def rope_parameters(positions: PositionsConfig) -> dict[str, Any]:
    """Their table for our positions; for those that they have no name for, the plain one."""
    types = [type for type, scaling in SCALINGS.items() if scaling.kind == positions.kind]
    type = (types or ["default"])[0]
    table: dict[str, Any] = {"rope_type": type, "rope_theta": float(getattr(positions, "base", BASE))}
    scaling = SCALINGS[type]
    for key in (*scaling.needs, *scaling.may):
        value = getattr(positions, OURS.get(key, key))
        if value or key in scaling.needs:
            table[key] = value
    return table


def _scaled(name: str, table: dict[str, Any], keys: Keys) -> dict[str, Any]:
    scaling = _scaling(name, table)
    for key, value in table.items():
        known = key in ("rope_type", "type", "rope_theta", *scaling.needs, *scaling.may)
        if not known and not (key in USUAL and value == USUAL[key]):
            raise ConfigError(f"{name} has {show(key)}: {show(value)}, which is not understood.")
    found: dict[str, Any] = {"kind": scaling.kind}
    for key in scaling.needs:
        if key == CONTEXT:
            size = Keys({CONTEXT: table.get(CONTEXT, keys["max_position_embeddings"])}).size(CONTEXT)
            found[OURS[CONTEXT]] = size
        elif key in table:
            found[key] = number(f"{key} of {name}", table[key])
        else:
            raise ConfigError(f"{name} scales by {scaling.kind} and does not say {key}.")
    for key in scaling.may:
        if table.get(key) is not None:
            value = number(f"{key} of {name}", table[key])
            if not value and key == "attention_factor":
                raise ConfigError(f"attention_factor of {name} is 0, and then every score would be 0.")
            if value:
                found[key] = value
    return found


def _scaling(name: str, table: dict[str, Any]) -> Scaling:
    types = {key: table[key] for key in ("rope_type", "type") if key in table} or {"type": "default"}
    for key, type in types.items():
        if not isinstance(type, str) or type not in SCALINGS:
            reason = REASONS.get(type, "a scaling that is not here") if isinstance(type, str) else "no name"
            raise ConfigError(f"{name} has the {key} {show(type)}: {reason}; have {', '.join(SCALINGS)}.")
    if len(set(types.values())) > 1:
        raise ConfigError(f"{name} has the rope_type and the type {' and '.join(types.values())}.")
    return SCALINGS[type]
