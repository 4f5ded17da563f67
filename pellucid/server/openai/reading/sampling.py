"""The settings of a request: what its fields give, and the model's own where they give none."""

import re
from collections.abc import Mapping
from typing import Any

from pellucid.base.errors import UsageError
from pellucid.generation.settings.foreign_keys import read_generation
from pellucid.generation.settings.resolve import resolve_sampling
from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.fields import DEFAULT_TEMPERATURE, FIELDS, WIRE_NAMES, name_wire

SETTING_OF = {row.field.name: row.field.setting for row in FIELDS if row.field.setting}
"""The setting that a field gives."""


def read_sampling(
    values: Mapping[str, Any], own: Mapping[str, Any] | None = None, room: int | None = None
) -> Sampling:
    """Returns the settings of a request from the values that `read_fields` returned.

    `own` are the model's own generation settings, without the tokens that end a text; the temperature is
    theirs, and 1 where they have none. `room` is the number of new tokens where the request does not say it.

    >>> read_sampling({"max_tokens": 16, "seed": 7}, {"temperature": 0.6})
    Sampling(temperature=0.6, max_new_tokens=16, seed=7)
    """
    sources = list_sources(values)
    given = {setting: values[name] for setting, name in sources.items() if values[name] is not None}
    if room is not None:
        given.setdefault("max_new_tokens", room)
    try:
        return resolve_sampling(own, None, _choose_temperature(own or {}, given) | given).sampling
    except UsageError as error:
        raise name_field(str(error), sources) from None


def list_sources(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the field that gives each setting.

    >>> list_sources({"prompt": ["A"], "max_tokens": 16})
    {'max_new_tokens': 'max_tokens'}
    """
    return {SETTING_OF[name]: name for name in values if name in SETTING_OF}


def _choose_temperature(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, float]:
    """Returns the default temperature, where neither the model nor a beam search has another."""
    known = {**DEFAULTS, "temperature": None, **read_generation(own, without=given), **given}
    is_open = known["temperature"] is None and known["beams"] == 1
    return {"temperature": DEFAULT_TEMPERATURE} if is_open else {}


def name_field(message: str, sources: Mapping[str, str]) -> RequestError:
    """Returns the error of settings that cannot be, with the names that the request has for them; a message
    begins with the setting's name."""
    message = name_wire(message, {**WIRE_NAMES, **sources})
    first = re.match(r"\w*", message)
    param = first[0] if first and first[0] in SETTING_OF else None
    return RequestError(message, param=param)
