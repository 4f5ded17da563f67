"""Decides what a MODEL argument is, for every command and every function, and opens it.

A path comes first: a folder (Pellucid's, Hugging Face's or a run's), a `.gguf` file or a `.toml` file. Then a
preset's name, with weights (abcd) or config-only (gpt2); then a name of the library, or hf:ORG/NAME.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from pellucid.base.errors import ConfigError, FileError, did_you_mean
from pellucid.base.files import read_text
from pellucid.config import ModelConfig, preset_text, presets
from pellucid.formats import library, toml_model
from pellucid.formats.folder import RECIPE, file_in, has_file, read_table, restore_model
from pellucid.formats.pretrained import Pretrained
from pellucid.text.tokenizer import Tokenizer

TAKES = (
    "Give a folder of Pellucid or Hugging Face, a run, a .gguf or .toml file, or a name that `pellucid list` "
    "shows."
)
MODEL = "model"
"""The folder of a run that holds its newest model."""
TOKENIZER_PLACES = ("", "model", "tokenizer", "data/tokenizer")
"""Where a folder may hold a tokenizer: a model or a tokenizer in itself, a run in its model, token files in
`tokenizer`, and a run that has not saved a model yet in its data."""


@dataclass(frozen=True)
class ModelReference:
    """What a MODEL argument names: `path`, or the text of a TOML model, which may be config-only."""

    name: str
    path: Path | None = None
    toml: str | None = None

    @property
    def is_config_only(self) -> bool:
        return self.toml is not None and "weights" not in toml_model.parse(self.name, self.toml)

    def config(self) -> ModelConfig:
        """Returns the config; weights are not needed."""
        if self.toml is not None:
            return toml_model.read_config(self.name, toml_model.parse(self.name, self.toml))
        return self.open().config

    def open(self) -> Pretrained:
        """Returns the model; its weights are read when they are used."""
        found = self._read()
        return replace(found, name=make_label(self.name), own_name=found.name)

    def _read(self) -> Pretrained:
        if self.toml is None:
            assert self.path is not None
            return _open_path(self.path)
        if self.is_config_only:
            self.config()  # a mistake in the config is reported first
            raise FileError(
                f"{self.name} is a config-only preset: it has no weights. `pellucid explain {self.name}` "
                "shows its parts and cost; use a model with weights, such as abcd, to see numbers."
            )
        return toml_model.read(self.name, self.toml)


def resolve(name: str | Path) -> ModelReference:
    """Returns what a MODEL argument names; raises where it names nothing."""
    path, text = Path(name), str(name)
    if text == "":  # an empty path would be the current folder
        raise ConfigError(f"the model's name is empty. {TAKES}")
    if path.suffix == ".toml":
        return ModelReference(text, toml=read_text(path))
    if len(path.parts) > 1:
        restore_model(path)
    if _exists(path):
        return ModelReference(text, path)
    if text in presets():
        return ModelReference(text, toml=preset_text(text))
    if path.suffix == ".gguf" or (len(path.parts) > 1 and not text.startswith(library.HUB)):
        raise FileError(f"{_shorten(text)} is not a model: there is no such file or folder. {TAKES}")
    if found := library.find(text):
        return ModelReference(text, found)
    known = sorted({*presets(), *library.KNOWN, *(entry.name for entry in library.list_models())})
    raise ConfigError(
        f"{_shorten(text)!r} is not a model: it is neither a path nor one of {', '.join(known)}."
        f"{did_you_mean(text, known)} {TAKES}"
    )


def make_label(name: str | Path) -> str:
    """Returns what a model is called that is opened by this MODEL argument: what was typed; of a file of the
    library its name there; of a path that ends in . or .. the name of that folder.

    >>> make_label("smollm2"), make_label("hf:org/small"), make_label("runs/a/"), make_label("a/b/..")
    ('smollm2', 'hf:org/small', 'runs/a', 'a')
    """
    path = Path(name)
    if str(name).startswith(library.HUB) and not _exists(path):
        return str(name)
    if entry := library.find_name(path):
        return entry
    return os.path.basename(os.path.abspath(path)) if path.name in ("", "..") else str(path)


def open_model(name: str | Path) -> Pretrained:
    """Returns the model that a MODEL argument names; its weights are read when they are used."""
    return resolve(name).open()


def read_config(name: str | Path) -> ModelConfig:
    """Returns the config of a model or of a config-only preset."""
    return resolve(name).config()


def is_config_only(name: str | Path) -> bool:
    """Returns whether a MODEL argument names a config without weights."""
    return resolve(name).is_config_only


def is_run(name: str | Path) -> bool:
    """Returns whether a MODEL argument names the folder of a training run."""
    return has_file(Path(name), RECIPE)


def open_tokenizer(name: str | Path) -> Tokenizer:
    """Returns the tokenizer of a MODEL argument, of a tokenizer's folder or of a folder of token files."""
    source = find_tokenizer(name)
    if isinstance(source, Tokenizer):
        return source
    from pellucid.formats.companions import read_tokenizer

    found = read_tokenizer(source)
    assert found is not None, "find_tokenizer returns a folder only where it has a tokenizer's files"
    return found


def find_tokenizer(name: str | Path) -> Path | Tokenizer:
    """Returns the folder that holds that tokenizer as `tokenizer.json` or GPT-2's two files, or the tokenizer
    itself where no folder does, as in a GGUF file."""
    found, reference = None, resolve(name)
    if (folder := _folder(reference)) is not None:
        from pellucid.formats.companions import read_tokenizer
        from pellucid.text.from_files import has_tokenizer

        for place in TOKENIZER_PLACES:
            if has_tokenizer(folder / place):
                return folder / place
            if found := read_tokenizer(folder / place):  # vocab.json and merges.txt
                return found
    elif not reference.is_config_only:
        found = reference.open().tokenizer
    if found is None:
        raise FileError(f"{_shorten(str(name))} has no tokenizer that can be read: use a model that has one.")
    return found


def _folder(reference: ModelReference) -> Path | None:
    path = reference.path
    if path is not None and path.name == "tokenizer.json":
        path = path.parent
    return path if path is not None and path.is_dir() else None


def _open_path(path: Path) -> Pretrained:
    """Returns the model of a folder or a file; the readers are imported when one is used."""
    if path.is_dir():
        return _open_folder(path)
    if path.suffix == ".gguf":
        from pellucid.formats.gguf import read

        return read(path)
    if path.suffix in (".bin", ".pt", ".pth"):
        raise FileError(f"{path} can run code when it is opened. Use `pellucid import` on its folder first.")
    if path.suffix in (".safetensors", ".json"):
        raise FileError(f"{path} is a part of a model; give its folder, {path.parent}.")
    raise FileError(f"{path} is not a model. {TAKES}")


def _open_folder(folder: Path) -> Pretrained:
    from pellucid.formats import huggingface, model_folder

    if is_run(folder) and not has_file(folder, "config.json"):
        folder = newest_model(folder)
    if not has_file(folder, "config.json"):
        if has_file(folder, "adapter_config.json") or has_file(folder, "adapter.json"):
            raise FileError(
                f"{folder} is a LoRA adapter, not a model. Merge it into the model that it adapts: "
                f"pellucid export MODEL --to hf -o FOLDER --adapter {folder}."
            )
        raise FileError(f"{folder} is not a model: it has no config.json. {TAKES}")
    model_type = read_table(file_in(folder, "config.json")).get("model_type")
    return model_folder.read(folder) if model_type == model_folder.MODEL_TYPE else huggingface.read(folder)


def newest_model(run: Path) -> Path:
    """Returns the folder of the newest model of a run."""
    model = run / MODEL
    restore_model(model)
    if has_file(model, "config.json"):
        return model
    saved = [path for path in run.glob(f"checkpoints/step-*/{MODEL}") if has_file(path, "config.json")]
    if not saved:
        raise FileError(
            f"{run} is a run that has not saved a model yet: `pellucid train --resume {run}` continues it."
        )
    return max(saved, key=lambda path: (len(path.parent.name), path.parent.name))  # the largest step


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _shorten(name: str) -> str:
    return name if len(name) <= 300 else name[:80] + "…"
