"""`pellucid list`: the models of the library, those that `get` can download, and the presets.

The file is not called list.py, because then `list` in this package would be that file.
"""

from typing import TYPE_CHECKING, Any

from pellucid.cli.options import Json
from pellucid.format import format_bytes

if TYPE_CHECKING:
    from pellucid.interop.library import Entry


def list_models(json: Json = False) -> None:
    """List the models of the library, those that `get` can download, and the presets."""
    from pellucid.config import preset, presets
    from pellucid.interop import library
    from pellucid.pretrained import parameter_count
    from pellucid.workbench import is_config_only

    entries = library.list_models()
    here = [_about(entry) for entry in entries]
    names = {entry.name for entry in entries}
    known: list[dict[str, Any]] = [
        {"name": known.name, "about": known.about, "licence": known.licence, "bytes": known.wheel_bytes}
        for known in library.KNOWN.values()
        if known.name not in names
    ]
    shapes: list[dict[str, Any]] = [
        {
            "name": name,
            "parameters": parameter_count(preset(name).parameters()),
            "weights": not is_config_only(name),
        }
        for name in presets()
    ]
    if json:
        from json import dumps

        found = {"library": str(library.library_folder()), "models": here, "known": known, "presets": shapes}
        print(dumps(found, ensure_ascii=False, indent=1))
        return
    print(
        f"models in {library.library_folder()}:" if here else f"no models yet in {library.library_folder()}"
    )
    _columns([_row(model) for model in here])
    print("\n`pellucid get NAME` downloads:")
    _columns(
        [
            *([k["name"], format_bytes(k["bytes"]), k["licence"], k["about"]] for k in known),
            ["hf:ORG/NAME", "", "", "a model of the Hugging Face hub"],
        ]
    )
    print("\npresets:")
    _columns([[s["name"], f"{s['parameters']:,} parameters", "with weights" * s["weights"]] for s in shapes])


def _about(entry: "Entry") -> dict[str, Any]:
    """Returns the facts of a model, or why it cannot be opened: one broken model does not hide the others."""
    from collections import Counter

    from pellucid.errors import PellucidError
    from pellucid.interop.resolve import open_model
    from pellucid.pretrained import parameter_count

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


def _row(model: dict[str, Any]) -> list[str]:

    size = format_bytes(model["bytes"])
    if "broken" in model:
        return [model["name"], "broken", "", size, model["broken"]]
    stored = ", ".join(model["types"])
    count = f"{model['parameters']:,} parameters"
    return [model["name"], model["architecture"], count, size, f"{stored}  {model['path']}"]


def _columns(rows: list[list[str]]) -> None:
    """Prints rows, each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
