"""The tokenizer inside a GGUF file, and its chat template, as ours; and ours as GGUF has it.

Byte-level BPE is read, which GGUF calls "gpt2". Of other kinds the model still loads, and takes ids.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.errors import FileError, did_you_mean
from pellucid.files import need
from pellucid.interop.gguf.container import Value
from pellucid.interop.gguf.opening import support
from pellucid.interop.gguf.word_cuts import CUTS, WordCut
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Kinds of tokens: CONTROL is read out of a text only when asked for, USER_DEFINED always."""

ENDS = ("eos", "eot", "eom")
"""The tokens that end an answer."""

SAMPLING: dict[str, tuple[str, type[int] | type[float]]] = {
    "temperature": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
}
"""What a file may recommend, in Hugging Face's words and in GGUF's, under `general.sampling`."""


@dataclass(frozen=True)
class Words:
    """What a file says about text."""

    tokenizer: Tokenizer | None
    chat_template: str | None
    add_bos: bool
    generation: dict[str, Any]


def read_words(facts: Mapping[str, Value], vocab_size: int, name: str) -> Words:
    """The tokenizer, its template and its ends; inside `opening`."""
    about = _About(facts)
    ends = [id for end in ENDS if (id := about.id(end, vocab_size)) is not None]
    generation: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(ends))} if ends else {}
    if (bos := about.id("bos", vocab_size)) is not None:
        generation["bos_token_id"] = bos
    for ours, (theirs, kind) in SAMPLING.items():
        value = facts.get(f"general.sampling.{theirs}")
        if type(value) is kind:
            generation[ours] = value
    template = facts.get("tokenizer.chat_template")
    need(template is None or isinstance(template, str), "tokenizer.chat_template is no text")
    is_bpe = about.text("model", "none") == "gpt2"
    cut = _cut_called(about.text("pre", "default")) if is_bpe else None
    return Words(
        _tokenizer(about, cut, vocab_size, name) if cut else None,
        template if isinstance(template, str) else None,
        about.truth("add_bos_token", cut.add_bos if cut else False),
        generation,
    )


class _About:
    """The facts under `tokenizer.ggml`, each of the type that it must have."""

    def __init__(self, facts: Mapping[str, Value]) -> None:
        self.facts = facts

    def get(self, key: str) -> Value | None:
        return self.facts.get(f"tokenizer.ggml.{key}")

    def text(self, key: str, default: str) -> str:
        value = self.get(key)
        need(value is None or isinstance(value, str), f"tokenizer.ggml.{key} is no text")
        return value if isinstance(value, str) else default

    def texts(self, key: str) -> list[str]:
        value = self.get(key)
        need(isinstance(value, list), f"tokenizer.ggml.{key} is no list of texts")
        return value  # type: ignore[return-value]

    def truth(self, key: str, default: bool) -> bool:
        value = self.get(key)
        need(value is None or isinstance(value, bool), f"tokenizer.ggml.{key} is neither true nor false")
        return value if isinstance(value, bool) else default

    def id(self, key: str, vocab_size: int) -> int | None:
        key = {"pad": "padding"}.get(key, key)
        value = self.get(f"{key}_token_id")
        if value is None or (isinstance(value, int) and value in (-1, 2**32 - 1)):
            return None  # some files say so that there is none
        good = type(value) is int and 0 <= value < vocab_size
        need(good, f"tokenizer.ggml.{key}_token_id is {value!r}, and there are {vocab_size:,} tokens")
        return value  # type: ignore[return-value]


def _cut_called(name: str) -> WordCut:
    hint = did_you_mean(name, CUTS)
    support(name in CUTS, f"its tokenizer cuts words in the way {name!r:.80}; have {', '.join(CUTS)}{hint}")
    return CUTS[name]


def _tokenizer(about: _About, cut: WordCut, vocab_size: int, name: str) -> Tokenizer:
    tokens, merges = about.texts("tokens"), about.texts("merges")
    vocab = {token: id for id, token in enumerate(tokens)}
    need(len(tokens) <= vocab_size, f"it has {len(tokens):,} tokens for {vocab_size:,} rows of the embedding")
    need(len(vocab) == len(tokens), "two of its tokens are the same")
    pairs = [merge.split(" ") for merge in merges]
    need(all(len(pair) == 2 for pair in pairs), "a merge of its tokenizer is not two tokens")
    kinds = about.get("token_type")
    if kinds is None:
        kinds = np.full(len(tokens), NORMAL, np.int32)
    good = isinstance(kinds, np.ndarray) and kinds.dtype.kind in "iu" and len(kinds) == len(tokens)
    need(good, "tokenizer.ggml.token_type does not say the kind of every token")
    assert isinstance(kinds, np.ndarray)
    names = {key: about.id(key, len(tokens)) for key in ("bos", "eos", "pad")}
    special = Special(**{key: tokens[id] for key, id in names.items() if id is not None})
    added = [tokens[id] for id in np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED))]
    file = byte_level_bpe(vocab, pairs, added)
    for entry in file["added_tokens"]:
        entry["special"] = bool(kinds[entry["id"]] == CONTROL)
    file["pre_tokenizer"] = cut.pre_tokenizer()
    file["model"]["ignore_merges"] = cut.whole_words
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "bpe", name)


def words_as_facts(words: Words, vocab_size: int) -> dict[str, Value]:
    """The facts that say so much about text; what GGUF cannot say is refused by name."""
    facts: dict[str, Value] = {}
    if words.tokenizer is None:
        facts["tokenizer.ggml.model"] = "none"
    else:
        facts |= _vocabulary(words.tokenizer, vocab_size)
        facts["tokenizer.ggml.add_bos_token"] = words.add_bos
    facts |= _ends(words)
    for ours, (theirs, kind) in SAMPLING.items():
        if words.generation.get(ours) is not None:
            facts[f"general.sampling.{theirs}"] = kind(words.generation[ours])
    if words.chat_template is not None:
        facts["tokenizer.chat_template"] = words.chat_template
    return facts


def _ends(words: Words) -> dict[str, Value]:
    special = words.tokenizer.special if words.tokenizer else Special()
    named = {"bos": special.bos, "eos": special.eos, "padding": special.pad}
    ids = {
        key: words.tokenizer.id_of(token)
        for key, token in named.items()
        if words.tokenizer and token is not None
    }
    ends = words.generation.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if len(ends) > len(ENDS):
        raise FileError(
            f"GGUF names at most {len(ENDS)} tokens that end an answer; this model has {len(ends)}."
        )
    ids |= dict(zip(ENDS, ends, strict=False))
    if words.generation.get("bos_token_id") is not None:
        ids["bos"] = words.generation["bos_token_id"]
    return {f"tokenizer.ggml.{key}_token_id": id for key, id in ids.items() if id is not None}


def _vocabulary(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Value]:
    file, model = _bpe_file(tokenizer)
    if tokenizer.vocab_size > vocab_size:
        raise FileError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens and the model {vocab_size:,} rows for them; "
            "GGUF wants a row for each. Export without the tokenizer, or with the model's own."
        )
    tokens = [f"[PAD{id}]" for id in range(vocab_size)]
    kinds = np.full(vocab_size, UNUSED, np.int32)
    for token, id in model["vocab"].items():
        tokens[id], kinds[id] = token, NORMAL
    for entry in file["added_tokens"]:
        tokens[entry["id"]] = entry["content"]
        kinds[entry["id"]] = CONTROL if entry["special"] else USER_DEFINED
        if entry["lstrip"] or entry["rstrip"] or entry["single_word"]:
            raise FileError(
                f"GGUF cannot say that the token {entry['content']!r} takes the spaces around it."
            )
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _name_of_cut(file, model),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
    }


def _bpe_file(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tokenizer.json of a tokenizer, and its model, if it is plain byte-level BPE."""
    file = tokenizer.file if isinstance(tokenizer, StandardTokenizer) else {}
    model = file.get("model", {})
    unusual = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback")
    why = (
        f"this one is of the kind {tokenizer.kind}"
        if model.get("type") != "BPE"
        or not isinstance(tokenizer, StandardTokenizer)
        or not tokenizer.byte_level
        else "this one changes the text before"
        if file.get("normalizer")
        else next((f"this one has {key}" for key in unusual if model.get(key)), None)
    )
    if why:
        raise FileError(
            f"of tokenizers, plain byte-level BPE can be written to GGUF; {why}. "
            "Export the model without its tokenizer, and give it ids."
        )
    return file, model


def _name_of_cut(file: dict[str, Any], model: dict[str, Any]) -> str:
    found = file.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers", [found])
    for name, cut in CUTS.items():
        same = len(steps) == len(cut.steps) and all(
            step.items() >= wanted.items() for step, wanted in zip(steps, cut.steps, strict=True)
        )
        if same and cut.whole_words == bool(model.get("ignore_merges")):
            return name
    raise FileError(
        "GGUF has no name for the way in which this tokenizer cuts words "
        f"({', '.join(step.get('type', 'none') for step in steps)}). Export the model without its tokenizer."
    )
