"""The files beside the weights in a folder: tokenizer, chat template, generation settings.

They have Hugging Face's names, in its folders and in ours: `tokenizer.json`, `tokenizer_config.json`,
`chat_template.jinja`, `generation_config.json`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError, PellucidError, quote, show
from pellucid.base.files import need, read_text, validating
from pellucid.formats.folder import (
    file_in,
    has_file,
    read_table,
    write_bytes,
    write_table,
    write_text,
)
from pellucid.formats.pretrained import Pretrained
from pellucid.text.from_files import byte_level_bpe, from_pretrained
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer

MAX_TEMPLATE_BYTES, MAX_TOKENIZER_BYTES = 1 << 20, 1 << 28
TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
ABOUT_THE_FILE = ("transformers_version", "_from_model_config")
MAX_ID = 1 << 24
GPT2_END = "<|endoftext|>"


@dataclass(frozen=True)
class Companions:
    """A model's tokenizer, chat template and generation settings, as `Pretrained` names them.

    `add_bos`: a text begins with bos."""

    tokenizer: Tokenizer | None
    chat_template: str | None
    add_bos: bool
    generation: dict[str, Any]


def read_companions(folder: Path, ids: dict[str, Any]) -> Companions:
    """Returns the companions of a folder; without a tokenizer a model still takes ids. `ids` are the special
    token ids of config.json, which generation_config.json may override."""
    settings = _read_optional(folder, SETTINGS)
    generation = ids | _read_optional(folder, GENERATION)
    with validating(folder / (GENERATION if has_file(folder, GENERATION) else "config.json")):
        for key, value in generation.items():
            if key.endswith("_token_id"):
                several = isinstance(value, list) and all(type(id) is int for id in value)
                need(
                    value is None or type(value) is int or several, f"{key} is {show(value)}, not a token id"
                )
    generation = {key: value for key, value in generation.items() if key not in ABOUT_THE_FILE}
    tokenizer = read_tokenizer(folder)
    if isinstance(tokenizer, StandardTokenizer):
        tokenizer.special = _complete_special(tokenizer, generation)
    return Companions(
        tokenizer=tokenizer,
        chat_template=_read_template(folder, settings),
        add_bos=_adds_bos(tokenizer, settings),
        generation=generation,
    )


def _read_optional(folder: Path, name: str) -> dict[str, Any]:
    return read_table(file_in(folder, name)) if has_file(folder, name) else {}


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Returns the tokenizer of a folder, in any known format; None where there is none."""
    whole, gpt2 = (
        has_file(folder, TOKENIZER),
        has_file(folder, "vocab.json") and has_file(folder, "merges.txt"),
    )
    if not whole and not gpt2 and not (has_file(folder, "vocab.bpe") and has_file(folder, "encoder.json")):
        return None
    if whole:
        path = file_in(folder, TOKENIZER)
        table = read_table(path, MAX_TOKENIZER_BYTES)
        with validating(path):
            _check_ids(table.get("model"), table.get("added_tokens"))
    try:
        return _read_gpt2(folder) if gpt2 and not whole else from_pretrained(folder)
    except PellucidError:
        raise
    except Exception as error:
        raise FileError(f"{folder} has no usable tokenizer: {quote(error)}.") from None


def _check_ids(model: Any, added: Any) -> None:
    """Raises where an id is too large: the library allocates every id below it, 8 GB for one id of 2³¹."""
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocab.values()) if isinstance(vocab, dict) else []
    ids += [entry.get("id") for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    largest = max((id for id in ids if type(id) is int), default=0)
    need(largest < MAX_ID, f"a token has the id {show(largest)}; the limit is {MAX_ID:,}")


def _read_gpt2(folder: Path) -> Tokenizer:
    """Returns GPT-2's tokenizer from two files: the ids of the tokens, and the merges in order."""
    path = file_in(folder, "vocab.json")
    vocab = read_table(path, MAX_TOKENIZER_BYTES) | _read_optional(folder, "added_tokens.json")
    text = read_text(file_in(folder, "merges.txt"), MAX_TOKENIZER_BYTES)
    merges = [line.split(" ") for line in text.splitlines() if line and not line.startswith("#version")]
    with validating(path):
        need(all(type(id) is int for id in vocab.values()), "an id is not an integer")
        _check_ids({"vocab": vocab}, [])
    with validating(folder / "merges.txt"):
        need(all(len(merge) == 2 for merge in merges), "a line is not two tokens")
    added = [*_read_optional(folder, "added_tokens.json"), GPT2_END]
    file = json.dumps(byte_level_bpe(vocab, merges, list(dict.fromkeys(added))))
    end = GPT2_END if GPT2_END in vocab else None
    return StandardTokenizer(file, Special(end, end), "bpe", str(path))


def _complete_special(tokenizer: StandardTokenizer, generation: dict[str, Any]) -> Special:
    """Returns the special tokens; those that the tokenizer's own files do not name are found by their ids."""

    def find(own: str | None, key: str) -> str | None:
        ids = generation.get(key)
        id = (ids or [None])[0] if isinstance(ids, list) else ids
        known = type(id) is int and 0 <= id < tokenizer.vocab_size
        return own if own is not None or not known else tokenizer.token(int(id or 0))

    special = tokenizer.special
    return Special(
        find(special.bos, "bos_token_id"),
        find(special.eos, "eos_token_id"),
        find(special.pad, "pad_token_id"),
    )


def _read_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Returns the template of `chat_template.jinja`, or of the settings: a string, or several with names."""
    if has_file(folder, TEMPLATE):
        return read_text(file_in(folder, TEMPLATE), MAX_TEMPLATE_BYTES)
    given = settings.get("chat_template")
    if isinstance(given, list):
        named = [entry for entry in given if isinstance(entry, dict) and entry.get("name") == "default"]
        given = named[0].get("template") if named else None
    with validating(folder / SETTINGS):
        need(given is None or isinstance(given, str), f"chat_template is {show(given)}, not a string")
    return given


def _adds_bos(tokenizer: Tokenizer | None, settings: dict[str, Any]) -> bool:
    """Returns whether a text begins with bos: by tokenizer.json's post-processor, else by the settings."""
    if tokenizer is None or tokenizer.special.bos is None:
        return False
    processor = tokenizer.file.get("post_processor") if isinstance(tokenizer, StandardTokenizer) else None
    templates = _find_templates(processor)
    if templates:
        return any(_first_token(template) == tokenizer.special.bos for template in templates)
    return settings.get("add_bos_token") is True


def _find_templates(processor: Any) -> list[dict[str, Any]]:
    if not isinstance(processor, dict):
        return []
    steps = processor.get("processors", []) if processor.get("type") == "Sequence" else [processor]
    return [step for step in steps if step.get("type") == "TemplateProcessing"]


def _first_token(template: dict[str, Any]) -> str | None:
    first = (template.get("single") or [{}])[0]
    return first.get("SpecialToken", {}).get("id") if isinstance(first, dict) else None


def write_companions(folder: Path, pretrained: Pretrained, for_others: bool = False) -> None:
    """Writes a model's companions. With `for_others`, tokenizer.json itself adds bos: `transformers` reads no
    other setting."""
    tokenizer = pretrained.tokenizer
    if tokenizer is not None:
        for name, data in tokenizer.files().items():
            write_bytes(folder / name, data)
        if tokenizer.special.bos is not None:
            settings = read_table(folder / SETTINGS)
            write_table(folder / SETTINGS, settings | {"add_bos_token": pretrained.add_bos})
        if for_others and pretrained.add_bos and isinstance(tokenizer, StandardTokenizer):
            _begin_with_bos(folder / TOKENIZER, tokenizer)
    if pretrained.chat_template is not None:
        write_text(folder / TEMPLATE, pretrained.chat_template)
    if pretrained.generation:
        write_table(folder / GENERATION, pretrained.generation)


def write_generation(folder: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes the generation settings of a model's folder, and returns what stood there before for each key,
    None where nothing did. The file is replaced whole; other settings stay."""
    path = file_in(folder, GENERATION)
    if path.is_symlink():
        raise FileError(f"{path} is a link to a file that others may read too. Put the file itself there.")
    before = _read_optional(folder, GENERATION)
    write_table(path, before | dict(changes))
    return {key: before.get(key) for key in changes}


def _begin_with_bos(path: Path, tokenizer: StandardTokenizer) -> None:
    bos = tokenizer.special.bos
    before = tokenizer.file.get("post_processor")
    if bos is None or _find_templates(before):
        return
    text = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    start = [{"SpecialToken": {"id": bos, "type_id": 0}}, text[0]]
    template = {
        "type": "TemplateProcessing",
        "single": start,
        "pair": [*start, text[1]],
        "special_tokens": {bos: {"id": bos, "ids": [tokenizer.id_of(bos)], "tokens": [bos]}},
    }
    steps = [] if before is None else before["processors"] if before["type"] == "Sequence" else [before]
    whole = {"type": "Sequence", "processors": [*steps, template]} if steps else template
    write_text(path, json.dumps(tokenizer.file | {"post_processor": whole}, ensure_ascii=False))
