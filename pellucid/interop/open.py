"""Opening any model file: a GGUF file, a Hugging Face folder, a folder of ours, or the folder of a run."""

from pathlib import Path

from pellucid.errors import FileError, show
from pellucid.interop import huggingface, model_folder
from pellucid.interop.folder import RECIPE, has, put_back, read_table, within
from pellucid.pretrained import Pretrained

TAKES = "Give a .gguf file, a Hugging Face folder, or a folder that Pellucid wrote."
MODEL = "model"
"""Where a run has its newest model."""


def open_model(path: str | Path) -> Pretrained:
    """The model at a path, whichever kind it is; its weights are read when they are used."""
    place = Path(path)
    put_back(place)
    if not _exists(place):
        raise FileError(f"{show(str(place))} is not there. {TAKES}")
    if place.is_dir():
        if has(place, RECIPE) and not has(place, "config.json"):
            place = newest_model(place)
        if not has(place, "config.json"):
            raise FileError(f"{place} is not a model: it has no config.json. {TAKES}")
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


def newest_model(run: Path) -> Path:
    """The newest model in the folder of a run."""
    model = run / MODEL
    put_back(model)
    if has(model, "config.json"):
        return model
    saved = [path for path in run.glob(f"checkpoints/step-*/{MODEL}") if has(path, "config.json")]
    if not saved:
        raise FileError(
            f"{run} is the folder of a run that has not saved a model yet: `pellucid train --resume {run}` "
            "goes on with it."
        )
    return max(saved, key=lambda path: (len(path.parent.name), path.parent.name))  # the largest step


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):  # a text that is no path at all
        return False
