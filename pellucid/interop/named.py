"""A model by what people call it: a file, a folder, a name of the library, a name that comes with us."""

from pathlib import Path

from pellucid.config import ModelConfig, preset_text, presets
from pellucid.errors import ConfigError, FileError, did_you_mean
from pellucid.files import read_bytes
from pellucid.interop import library, toml_model
from pellucid.interop.folder import put_back
from pellucid.pretrained import Pretrained
from pellucid.text.tokenizer import Tokenizer


def opened(name: str | Path) -> Pretrained:
    """What the file says; its weights are read when they are asked for."""
    text = _toml(name)
    if text is None:
        from pellucid.interop.open import open_model  # the readers of real files take a tenth of a start

        return open_model(_path(name))
    data = toml_model.tables(str(name), text)
    toml_model.config_of(str(name), data)  # what is wrong with a shape is told first
    if "weights" not in data:
        raise FileError(
            f"{name} is a shape without weights: `pellucid explain {name}` shows its parts and cost. "
            "To see numbers, use a model that has some, such as abcd."
        )
    return toml_model.read(str(name), text)


def config_of(name: str | Path) -> ModelConfig:
    """The config of a model or a shape."""
    text = _toml(name)
    if text is None:
        return opened(name).config
    return toml_model.config_of(str(name), toml_model.tables(str(name), text))


def weightless(name: str | Path) -> bool:
    """Whether the name is a shape without weights."""
    text = _toml(name)
    return text is not None and "weights" not in toml_model.tables(str(name), text)


TOKENIZER_PLACES = ("", "model", "tokenizer", "data/tokenizer")
"""Where a folder has its tokenizer: a model or a tokenizer in itself, a run in its model, token files beside
them, and a run that has no model yet in its data."""


def tokenizer_of(name: str | Path) -> Tokenizer:
    """The tokenizer of everything that a MODEL argument may be, of a tokenizer's and of a token folder."""
    source = tokenizer_source(name)
    if isinstance(source, Tokenizer):
        return source
    from pellucid.interop.companions import read_tokenizer

    found = read_tokenizer(source)
    assert found is not None, "a folder is a source where it has a tokenizer's files"
    return found


def tokenizer_source(name: str | Path) -> Path | Tokenizer:
    """The folder that holds that tokenizer as `tokenizer.json` or GPT-2's two files; the tokenizer itself
    where it is in no such folder, as in a GGUF file."""
    found = None
    if (folder := _folder(name)) is not None:
        from pellucid.interop.companions import read_tokenizer
        from pellucid.text.pretrained import has_tokenizer

        for place in TOKENIZER_PLACES:
            if has_tokenizer(folder / place):
                return folder / place
            if found := read_tokenizer(folder / place):  # vocab.json and merges.txt
                return found
    elif not weightless(name):
        found = opened(name).tokenizer
    if found is None:
        raise FileError(f"{_short(name)} has no tokenizer that can be read here: give a model that has one.")
    return found


def _folder(name: str | Path) -> Path | None:
    """The folder of a name, or of a tokenizer.json; None for a file and for a preset."""
    if _toml(name) is not None:
        return None
    path = _path(name)
    path = path.parent if path.name == "tokenizer.json" else path
    return path if path.is_dir() else None


def _toml(name: str | Path) -> str | None:
    """The text of a model that is written down in TOML; None for every other."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return read_bytes(path).decode("utf-8")
        except UnicodeDecodeError:
            raise FileError(f"cannot read {_short(path)}: it is not text.") from None
        except FileError as error:
            raise type(error)(str(error).replace(str(path), _short(path))) from None
    is_preset = str(name) in presets() and not _exists(path)  # a folder of one's own comes first
    return preset_text(str(name)) if is_preset else None


def _path(name: str | Path) -> Path:
    if name == "":  # a path that is empty would be the folder one stands in
        raise ConfigError("the model's name is empty; give a folder, a file or a name, such as abcd.")
    path = Path(name)
    if len(path.parts) > 1:
        put_back(path)
    if _exists(path):
        return path
    if path.suffix == ".gguf" or (len(path.parts) > 1 and not str(name).startswith(library.HUB)):
        raise FileError(f"{_short(name)}: there is no such file or folder.")
    if found := library.find(str(name)):
        return found
    known = sorted({*presets(), *library.KNOWN, *(entry.name for entry in library.names())})
    raise ConfigError(
        f"no model called {_short(name)!r}; have {', '.join(known)}, "
        "or give a folder, a .gguf or a .toml file." + did_you_mean(str(name), known)
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _short(name: str | Path) -> str:
    """A name, not too long for a message."""
    return text if len(text := str(name)) <= 300 else text[:80] + "…"
