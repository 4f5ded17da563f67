"""Opening any model file: a GGUF file, a Hugging Face folder, or a folder of ours."""

from pathlib import Path

from pellucid.errors import FileError
from pellucid.interop import huggingface, model_folder
from pellucid.interop.folder import has, read_table, shown, within
from pellucid.interop.pretrained import Pretrained

TAKES = "Give a .gguf file, a Hugging Face folder, or a folder that Pellucid wrote."


def open_model(path: str | Path) -> Pretrained:
    """The model at a path, whichever kind it is; its weights are read when they are used."""
    place = Path(path)
    if not _exists(place):
        raise FileError(f"{shown(str(place))} is not there. {TAKES}")
    if place.is_dir():
        if not has(place, "config.json"):
            if has(place, "recipe.toml") and has(place / "model", "config.json"):
                raise FileError(f"{place} is the folder of a run: its newest model is {place / 'model'}.")
            raise FileError(f"{place} is no model: it has no config.json. {TAKES}")
        model_type = read_table(within(place, "config.json")).get("model_type")
        return model_folder.read(place) if model_type == model_folder.MODEL_TYPE else huggingface.read(place)
    if place.suffix == ".gguf":
        from pellucid.interop.gguf import read

        return read(place)
    if place.suffix in (".bin", ".pt", ".pth"):
        raise FileError(f"{place} can run code when it is opened. Use `pellucid import` on its folder first.")
    if place.suffix in (".safetensors", ".json"):
        raise FileError(f"{place} is a part of a model; give its folder, {place.parent}.")
    raise FileError(f"{place} is no model that can be read. {TAKES}")


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):  # a text that is no path at all
        return False
