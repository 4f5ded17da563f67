"""Tokenizers from files: a folder with `tokenizer.json`, or with GPT-2's `vocab.bpe` and `encoder.json`."""

import json
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError
from pellucid.base.files import read_bytes, read_json
from pellucid.text.tokenizer import FORMAT, Special, Tokenizer, make_file
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer


def from_pretrained(folder: str | Path) -> Tokenizer:
    """Returns the tokenizer of a folder, or of a `tokenizer.json` file."""
    path = Path(folder)
    path = path.parent if path.name == "tokenizer.json" else path
    if not has_tokenizer(path):
        raise FileError(
            f"{folder} is not a tokenizer folder: it needs tokenizer.json, or vocab.bpe and encoder.json."
        )
    if _has_gpt2_files(path):
        return _read_gpt2(path)
    file = read_json(path / "tokenizer.json")
    config = read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").exists() else {}
    if not isinstance(file, dict) or not isinstance(config, dict):
        raise FileError(f"{path / 'tokenizer.json'} is not a tokenizer: it is not a table.")
    own = config.get("pellucid", {})
    if not isinstance(own, dict) or own.get("format", FORMAT) != FORMAT:
        raise FileError(
            f"{path} has tokenizer format {own.get('format') if isinstance(own, dict) else own!r}; "
            f"this version of Pellucid reads {FORMAT}."
        )
    special = special_of(config)
    for kind in (WordTokenizer, CharacterTokenizer):
        if _is_word_level(file, kind):
            return _read_word_level(path, file, special, kind)
    from pellucid.text.standard import StandardTokenizer

    text = read_bytes(path / "tokenizer.json").decode("utf-8")
    return StandardTokenizer(text, special, str(own.get("kind", "")), str(path / "tokenizer.json"))


def has_tokenizer(folder: Path) -> bool:
    """Returns whether `from_pretrained` finds a tokenizer's files there."""
    return (folder / "tokenizer.json").exists() or _has_gpt2_files(folder)


def _has_gpt2_files(folder: Path) -> bool:
    return (folder / "vocab.bpe").exists() and (folder / "encoder.json").exists()


def special_of(config: dict[str, Any]) -> Special:
    """Returns the special tokens of a `tokenizer_config.json`: texts, or tables with a `content`."""

    def name(key: str) -> str | None:
        given = config.get(key)
        given = given.get("content") if isinstance(given, dict) else given
        return given if isinstance(given, str) else None

    return Special(name("bos_token"), name("eos_token"), name("pad_token"))


def _is_word_level(file: dict[str, Any], kind: type[WordTokenizer | CharacterTokenizer]) -> bool:
    model = file.get("model")
    plain = not file.get("normalizer") and not file.get("post_processor")
    words = isinstance(model, dict) and model.get("type") == "WordLevel"
    same = file.get("pre_tokenizer") == kind.pre_tokenizer and file.get("decoder") == kind.decoder
    return plain and words and same


def _read_word_level(
    path: Path, file: dict[str, Any], special: Special, kind: type[WordTokenizer | CharacterTokenizer]
) -> Tokenizer:
    vocab, unknown = file["model"].get("vocab"), file["model"].get("unk_token")
    if not isinstance(vocab, dict) or sorted(vocab.values(), key=str) != sorted(range(len(vocab)), key=str):
        raise FileError(f"{path / 'tokenizer.json'}: the ids of its words are not 0, 1, 2, …")
    if missing := [name for name in special.names() if name not in vocab]:
        raise FileError(
            f"{path / 'tokenizer.json'} has no token {missing[0]!r}, which its configuration names."
        )
    words = tuple(sorted(vocab, key=vocab.__getitem__))
    known = isinstance(unknown, str) and unknown in vocab
    return kind(words, special, unknown if known else None)


def _read_gpt2(path: Path) -> Tokenizer:
    """Reads GPT-2's two files: the ids of the tokens, and the merges in order."""
    from pellucid.text.standard import StandardTokenizer

    vocab = read_json(path / "encoder.json")
    lines = (path / "vocab.bpe").read_text("utf-8").split("\n")
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if not isinstance(vocab, dict) or not all(len(merge) == 2 for merge in merges):
        raise FileError(f"{path}: encoder.json must be a table and vocab.bpe two tokens a line.")
    end = "<|endoftext|>"
    return StandardTokenizer(
        json.dumps(byte_level_bpe(vocab, merges, [end])), Special(end, end), "bpe", str(path)
    )


def byte_level_bpe(vocab: dict[str, int], merges: list[list[str]], special: list[str]) -> dict[str, Any]:
    """Returns a byte-level BPE as a `tokenizer.json`."""
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return make_file({"type": "BPE", "vocab": vocab, "merges": merges}, vocab, special, bytes_, bytes_)
