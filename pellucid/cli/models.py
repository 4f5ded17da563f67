"""`pellucid list`: the models of the library, those that `get` can download, and the presets.

The file is not called list.py, because then `list` in this package would be that file.
"""

from typing import Any

from pellucid.base.formatting import format_bytes
from pellucid.cli.options import Json


def list_models(json: Json = False) -> None:
    """List the models of the library, those that `get` can download, and the presets."""
    from pellucid.formats.resolve import list_models

    found = list_models()
    if json:
        from json import dumps

        print(dumps(found, ensure_ascii=False, indent=1))
        return
    models = found["models"]
    print(f"models in {found['library']}:" if models else f"no models yet in {found['library']}")
    _print_columns([_row(model) for model in models])
    print("\n`pellucid get NAME` downloads:")
    _print_columns(
        [
            *([k["name"], format_bytes(k["bytes"]), k["licence"], k["about"]] for k in found["known"]),
            ["hf:ORG/NAME", "", "", "a model of the Hugging Face hub"],
        ]
    )
    print("\npresets:")
    _print_columns(
        [
            [shape["name"], f"{shape['parameters']:,} parameters", "with weights" * shape["weights"]]
            for shape in found["presets"]
        ]
    )


def _row(model: dict[str, Any]) -> list[str]:
    size = format_bytes(model["bytes"])
    if "broken" in model:
        return [model["name"], "broken", "", size, model["broken"]]
    stored = ", ".join(model["types"])
    count = f"{model['parameters']:,} parameters"
    return [model["name"], model["architecture"], count, size, f"{stored}  {model['path']}"]


def _print_columns(rows: list[list[str]]) -> None:
    """Prints rows, each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
