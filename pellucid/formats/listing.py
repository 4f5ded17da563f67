"""The models that a name can mean: those of the library, those that can be fetched, and the presets."""

from collections import Counter
from typing import Any

from pellucid.base.errors import PellucidError
from pellucid.config import preset, preset_text, presets
from pellucid.formats import library, toml_model
from pellucid.formats.pretrained import parameter_count
from pellucid.formats.resolve import open_model


def list_models() -> dict[str, Any]:
    """Returns the library's folder and models, the known models that `get` could fetch, and the presets."""
    entries = library.list_models()
    here = {entry.name for entry in entries}
    known = [
        {"name": known.name, "about": known.about, "licence": known.licence, "bytes": known.wheel_bytes}
        for known in library.KNOWN.values()
        if known.name not in here
    ]
    shapes = [
        {
            "name": name,
            "parameters": parameter_count(preset(name).parameters()),
            "weights": "weights" in toml_model.parse(name, preset_text(name)),
        }
        for name in presets()
    ]
    models = [_describe(entry) for entry in entries]
    return {"library": str(library.library_folder()), "models": models, "known": known, "presets": shapes}


def _describe(entry: library.LibraryEntry) -> dict[str, Any]:
    """Returns the figures of a model, or why it cannot be opened: a broken one does not hide the others."""
    about: dict[str, Any] = {"name": entry.name, "path": str(entry.path), "bytes": entry.bytes}
    try:
        model = open_model(entry.path)
    except PellucidError as error:
        return about | {"broken": str(error)}
    return about | {
        "architecture": model.provenance.architecture,
        "parameters": parameter_count(model.config.parameters()),
        "types": dict(Counter(model.provenance.types.values()).most_common()),
    }
