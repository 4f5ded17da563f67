"""Decides what a MODEL argument is, for every command and every function, and opens it.

A path comes first: a folder (Pellucid's, Hugging Face's or a run's), a `.gguf` file or a `.toml` file. Then a
preset's name, with weights (abcd) or config-only (gpt2); then a name of the library, or hf:ORG/NAME.
"""

import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base import schema
from pellucid.base.dtypes import Array
from pellucid.base.errors import ConfigError, FileError, PellucidError, did_you_mean
from pellucid.base.files import read_text
from pellucid.base.schema import Field
from pellucid.base.toml import parse_toml
from pellucid.config import ModelConfig, preset, preset_text, presets
from pellucid.formats.folder import RECIPE, file_in, has_file, read_table, restore_model
from pellucid.formats.pretrained import Pretrained, Provenance, parameter_count, shape_mismatch
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import WordTokenizer

if TYPE_CHECKING:
    from pellucid.formats.library import LibraryEntry

TAKES = (
    "Give a folder of Pellucid or Hugging Face, a run, a .gguf or .toml file, or a name that `pellucid list` "
    "shows."
)
MODEL = "model"
"""The folder of a run that holds its newest model."""
TOKENIZER_PLACES = ("", "model", "tokenizer", "data/tokenizer")
"""Where a folder may hold a tokenizer: a model or a tokenizer in itself, a run in its model, token files in
`tokenizer`, and a run that has not saved a model yet in its data."""


TABLES = (Field("config", Any), Field("words", Any, None), Field("weights", Any, None))
"""The tables of a TOML model; what they hold is read below."""


@dataclass(frozen=True)
class ModelReference:
    """What a MODEL argument names: `path`, or the text of a TOML model, which may be config-only."""

    name: str
    path: Path | None = None
    toml: str | None = None

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """The tables of a TOML model."""
        return parse_toml(self.toml or "", self.name)

    @property
    def is_config_only(self) -> bool:
        return self.toml is not None and "weights" not in self._tables

    def config(self) -> ModelConfig:
        """Returns the config; weights are not needed."""
        if self.toml is not None:
            return _read_toml_config(self.name, self._tables)
        return self.open().config

    def open(self) -> Pretrained:
        """Returns the model; its weights are read when they are used."""
        if self.path is not None:
            found = _open_path(self.path)
        elif self.is_config_only:
            self.config()  # a mistake in the config is reported first
            raise FileError(
                f"{self.name} is a config-only preset: it has no weights. `pellucid explain {self.name}` "
                "shows its parts and cost; use a model with weights, such as abcd, to see numbers."
            )
        else:
            found = _read_toml(self.name, self._tables, len((self.toml or "").encode()))
        is_preset = self.path is None and not self.name.endswith(".toml")
        label = self.name if is_preset else make_label(self.name)
        return replace(found, name=label, own_name=found.name)


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
    from pellucid.formats import library  # a preset needs none

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
    from pellucid.formats import library

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


# ---- a small model in one TOML file: config, words and weights, as the teaching models are stored


def _read_toml(name: str, data: dict[str, Any], size: int) -> Pretrained:
    """Returns the model of the tables of a TOML file of this size; `name` is its path, or a preset's name."""
    config, words = _read_toml_config(name, data), data.get("words", [])
    if not isinstance(words, list) or not all(
        isinstance(word, str) and word.split() == [word] for word in words
    ):
        raise FileError(f"{name}: words must be a list of strings without spaces.")
    if len(words) != config.vocab_size or len(set(words)) != len(words):
        raise FileError(
            f"{name}: vocab_size is {config.vocab_size}, so there must be as many different words; "
            f"got {len(set(words))}."
        )
    weights = _read_weights(name, config, data["weights"])
    source = Provenance(Path(name), "toml", "pellucid", dict.fromkeys(weights, "F64"), size)
    return Pretrained(Path(name).stem, config, weights, WordTokenizer(tuple(words)), source)


def _read_toml_config(name: str, data: dict[str, Any]) -> ModelConfig:
    """Returns the config of a parsed TOML model; it need not have weights."""
    schema.read(TABLES, data, name, path=f"{name}: ", error=FileError)
    try:
        return ModelConfig.from_dict(data["config"])
    except ConfigError as error:
        raise ConfigError(f"{name}, [config]: {error}") from None


def _read_weights(name: str, config: ModelConfig, given: Any) -> dict[str, Array]:
    if not isinstance(given, dict):
        raise FileError(f"{name}: [weights] must be a table of names.")
    weights = dict[str, Array]()
    for key, value in given.items():
        try:
            array = np.array(value)
        except ValueError:
            array = np.array("ragged")
        if array.dtype.kind not in "if" or not np.isfinite(array).all():
            raise FileError(f"{name}: the weight {key!r} is not a table of numbers.")
        weights[key] = array.astype(np.float64)
    if why := shape_mismatch(config.parameters(), {key: array.shape for key, array in weights.items()}):
        raise FileError(f"{name}: {why}{'' if why.endswith('?') else '.'}")
    return {key: weights[key] for key in config.parameters()}


# ---- the models that a name can mean


def list_models() -> dict[str, Any]:
    """Returns the library's folder and models, the known models that `get` could fetch, and the presets."""
    from pellucid.formats import library

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
            "weights": "weights" in parse_toml(preset_text(name), name),
        }
        for name in presets()
    ]
    models = [_describe(entry) for entry in entries]
    return {"library": str(library.library_folder()), "models": models, "known": known, "presets": shapes}


def _describe(entry: "LibraryEntry") -> dict[str, Any]:
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
