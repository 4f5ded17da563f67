"""A small byte-level BPE tokenizer for folders: 256 bytes, some merges, and three special tokens."""

import json
from pathlib import Path
from typing import Any

from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import LETTER_BYTE

SPECIAL = ("<s>", "</s>", "<pad>")
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [259], "tokens": ["<s>"]}},
}
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def vocabulary() -> tuple[dict[str, int], list[list[str]]]:
    merges = [["t", "h"], ["th", "e"], ["i", "n"]]
    tokens = [*LETTER_BYTE, *map("".join, merges)]
    return {token: id for id, token in enumerate(tokens)}, merges


def bpe_table(post_processor: dict[str, Any] | None = None) -> dict[str, Any]:
    vocab, merges = vocabulary()
    vocab |= {name: len(vocab) + place for place, name in enumerate(SPECIAL)}
    return byte_level_bpe(vocab, merges, list(SPECIAL)) | {"post_processor": post_processor}


def bpe_file(folder: Path, post_processor: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Write tokenizer.json and tokenizer_config.json into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(bpe_table(post_processor)))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder
