"""The tokenizer and chat template of a GGUF file, read and written.

Byte-level BPE is supported, which GGUF calls "gpt2". A model with another kind still loads, and takes ids.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, not_one_of
from pellucid.base.files import need
from pellucid.formats.companions import Companions
from pellucid.formats.gguf.container import Value, require_support
from pellucid.formats.pretrained import Pretrained
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import GPT2_SPLIT, StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer

Step = dict[str, Any]

_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# What lies between two matches is a word as well. Without the key `invert`, other steps do not equal it.
_BLOOM = {"type": "Split", "pattern": {"Regex": r" ?[^(\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated"}


def _split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _split_words(digits: str) -> tuple[Step, ...]:
    """Returns one pattern for words, for groups of digits, and for the rest."""
    return _split(rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}{_REST}"), _BYTES


_REST_OF: dict[str, Step] = {"ByteLevel": {"trim_offsets": True}, "Split": {"invert": True}, "Digits": {}}
"""Keys that a step of this type must have in tokenizer.json, though they change nothing here."""


@dataclass(frozen=True)
class PreTokenizer:
    """The steps; whether a word that is a token is taken without merging (`ignore_merges`); and whether a
    text begins with bos where the file does not say."""

    steps: tuple[Step, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def to_json(self) -> Step:
        """Returns the pre-tokenizer as `tokenizer.json` has it."""
        steps = [_REST_OF[step["type"]] | step for step in self.steps]
        return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


_WORDS = PreTokenizer((_GPT2,))
_DIGITS = PreTokenizer(({"type": "Digits", "individual_digits": True}, _GPT2))
_THREE_DIGITS = _split_words(r"\p{N}{1,3}")
_ONE_DIGIT = PreTokenizer(_split_words(r"\p{N}"))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": _WORDS,
    "smollm": _DIGITS,
    "llama-bpe": PreTokenizer(_THREE_DIGITS, ignore_merges=True, add_bos=True),
    "qwen2": _ONE_DIGIT,
    "dbrx": PreTokenizer(_THREE_DIGITS),
    "default": PreTokenizer(
        (
            _split(r"[\p{P}\$\+<=>\^~\|]+"),
            _split(GPT2_SPLIT),
            _split(r"\p{N}+"),
            _split("[0-9][0-9][0-9]"),
            _BYTES,
        )
    ),
    "bloom": PreTokenizer((_BLOOM, _BYTES)),
    "codeshell": _DIGITS,
    "command-r": _DIGITS,
    "exaone": _DIGITS,
    "jais": _WORDS,
    "llama-v3": PreTokenizer(_THREE_DIGITS, ignore_merges=True, add_bos=True),
    "llama3": PreTokenizer(_THREE_DIGITS, ignore_merges=True, add_bos=True),
    "mpt": _WORDS,
    "olmo": _WORDS,
    "phi-2": _WORDS,
    "refact": _DIGITS,
    "roberta-bpe": _WORDS,
    "smaug-bpe": PreTokenizer(_THREE_DIGITS),
    "stablelm2": _ONE_DIGIT,
    "starcoder": _DIGITS,
}
"""By the name under `tokenizer.ggml.pre`. Of several names for the same, the first is written."""


NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Types of tokens: CONTROL is parsed from a text only with parse_special, USER_DEFINED always."""

END_TOKENS = ("eos", "eot", "eom")
"""The tokens that end an answer."""

SAMPLING: dict[str, tuple[str, type[int] | type[float]]] = {
    "temperature": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "repetition_penalty": ("penalty_repeat", float),
}
"""Recommended sampling settings: Hugging Face's key, and GGUF's under `general.sampling` with its type."""


def read_companions(metadata: Mapping[str, Value], vocab_size: int, name: str) -> Companions:
    """Returns the tokenizer, chat template and generation settings; call it inside `reading_errors`."""
    given = _TokenizerMetadata(metadata)
    ends = [id for end in END_TOKENS if (id := given.id(end, vocab_size)) is not None]
    generation: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(ends))} if ends else {}
    if (bos := given.id("bos", vocab_size)) is not None:
        generation["bos_token_id"] = bos
    for ours, (theirs, kind) in SAMPLING.items():
        value = metadata.get(f"general.sampling.{theirs}")
        if type(value) is kind:
            generation[ours] = value
    template = metadata.get("tokenizer.chat_template")
    need(template is None or isinstance(template, str), "tokenizer.chat_template is not a string")
    is_bpe = given.text("model", "none") == "gpt2"
    pre = _find_pre_tokenizer(given.text("pre", "default")) if is_bpe else None
    return Companions(
        _build_tokenizer(given, pre, vocab_size, name) if pre else None,
        template if isinstance(template, str) else None,
        given.boolean("add_bos_token", pre.add_bos if pre else False),
        generation,
    )


class _TokenizerMetadata:
    """The metadata under `tokenizer.ggml`, each checked to have its type."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self.metadata = metadata

    def get(self, key: str) -> Value | None:
        return self.metadata.get(f"tokenizer.ggml.{key}")

    def text(self, key: str, default: str) -> str:
        value = self.get(key)
        need(value is None or isinstance(value, str), f"tokenizer.ggml.{key} is not a string")
        return value if isinstance(value, str) else default

    def strings(self, key: str) -> list[str]:
        value = self.get(key)
        need(isinstance(value, list), f"tokenizer.ggml.{key} is not a list of strings")
        return value  # type: ignore[return-value]

    def boolean(self, key: str, default: bool) -> bool:
        value = self.get(key)
        need(value is None or isinstance(value, bool), f"tokenizer.ggml.{key} is neither true nor false")
        return value if isinstance(value, bool) else default

    def id(self, key: str, vocab_size: int) -> int | None:
        key = {"pad": "padding"}.get(key, key)
        value = self.get(f"{key}_token_id")
        if value is None or (isinstance(value, int) and value in (-1, 2**32 - 1)):
            return None  # how some files mark an absent token
        good = type(value) is int and 0 <= value < vocab_size
        need(good, f"tokenizer.ggml.{key}_token_id is {value!r}; the vocabulary has {vocab_size:,} tokens")
        return value  # type: ignore[return-value]


def _find_pre_tokenizer(name: str) -> PreTokenizer:
    require_support(name in PRE_TOKENIZERS, not_one_of("tokenizer.ggml.pre", name, PRE_TOKENIZERS))
    return PRE_TOKENIZERS[name]


def _build_tokenizer(given: _TokenizerMetadata, pre: PreTokenizer, vocab_size: int, name: str) -> Tokenizer:
    tokens, merges = given.strings("tokens"), given.strings("merges")
    vocab = {token: id for id, token in enumerate(tokens)}
    need(len(tokens) <= vocab_size, f"it has {len(tokens):,} tokens for {vocab_size:,} rows of the embedding")
    need(len(vocab) == len(tokens), "two of its tokens are the same")
    pairs = [merge.split(" ") for merge in merges]
    need(all(len(pair) == 2 for pair in pairs), "a merge of its tokenizer is not two tokens")
    kinds = given.get("token_type")
    if kinds is None:
        kinds = np.full(len(tokens), NORMAL, np.int32)
    good = isinstance(kinds, np.ndarray) and kinds.dtype.kind in "iu" and len(kinds) == len(tokens)
    need(good, "tokenizer.ggml.token_type does not have the type of every token")
    assert isinstance(kinds, np.ndarray)
    names = {key: given.id(key, len(tokens)) for key in ("bos", "eos", "pad")}
    special = Special(**{key: tokens[id] for key, id in names.items() if id is not None})
    added = [tokens[id] for id in np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED))]
    file = byte_level_bpe(vocab, pairs, added)
    for entry in file["added_tokens"]:
        entry["special"] = bool(kinds[entry["id"]] == CONTROL)
    file["pre_tokenizer"] = pre.to_json()
    file["model"]["ignore_merges"] = pre.ignore_merges
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "bpe", name)


def companions_metadata(model: Pretrained) -> dict[str, Value]:
    """Returns the metadata of a model's tokenizer, chat template and generation settings; raises where GGUF
    has no key for one of them."""
    metadata: dict[str, Value] = {}
    if model.tokenizer is None:
        metadata["tokenizer.ggml.model"] = "none"
    else:
        metadata |= _vocabulary(model.tokenizer, model.config.vocab_size)
        metadata["tokenizer.ggml.add_bos_token"] = model.add_bos
    metadata |= _special_ids(model)
    metadata |= _sampling_metadata(model.generation)
    if model.chat_template is not None:
        metadata["tokenizer.chat_template"] = model.chat_template
    return metadata


def _sampling_metadata(generation: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the recommended sampling settings. GGUF says greedy by the temperature 0, and Hugging Face by
    `do_sample`, whatever the temperature."""
    given = {**generation, "temperature": 0.0} if generation.get("do_sample") is False else generation
    return {
        f"general.sampling.{theirs}": kind(given[ours])
        for ours, (theirs, kind) in SAMPLING.items()
        if type(given.get(ours)) in (int, float)
    }


def _special_ids(model: Pretrained) -> dict[str, Value]:
    special = model.tokenizer.special if model.tokenizer else Special()
    named = {"bos": special.bos, "eos": special.eos, "padding": special.pad}
    ids = {
        key: model.tokenizer.id_of(token)
        for key, token in named.items()
        if model.tokenizer and token is not None
    }
    ends = model.generation.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if len(ends) > len(END_TOKENS):
        raise FileError(f"GGUF has keys for {len(END_TOKENS)} end tokens; this model has {len(ends)}.")
    ids |= dict(zip(END_TOKENS, ends, strict=False))
    if model.generation.get("bos_token_id") is not None:
        ids["bos"] = model.generation["bos_token_id"]
    return {f"tokenizer.ggml.{key}_token_id": id for key, id in ids.items() if id is not None}


def _vocabulary(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Value]:
    file, model = _bpe_file(tokenizer)
    if tokenizer.vocab_size > vocab_size:
        raise FileError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens and the embedding {vocab_size:,} rows; "
            "GGUF needs a row for each. Export without the tokenizer, or with the model's own."
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
                f"GGUF cannot express that the token {entry['content']!r} strips the spaces around it."
            )
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _name_pre_tokenizer(file, model),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
    }


def _bpe_file(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the tokenizer.json of a tokenizer, and its model; raises unless it is plain byte-level BPE."""
    file = tokenizer.file if isinstance(tokenizer, StandardTokenizer) else {}
    model = file.get("model", {})
    unusual = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback")
    why = (
        f"this one is of the kind {tokenizer.kind}"
        if model.get("type") != "BPE"
        or not isinstance(tokenizer, StandardTokenizer)
        or not tokenizer.byte_level
        else "this one has a normalizer"
        if file.get("normalizer")
        else next((f"this one has {key}" for key in unusual if model.get(key)), None)
    )
    if why:
        raise FileError(
            f"only plain byte-level BPE tokenizers can be written to GGUF; {why}. "
            "Export the model without its tokenizer, and give it ids."
        )
    return file, model


def _name_pre_tokenizer(file: dict[str, Any], model: dict[str, Any]) -> str:
    found = file.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers", [found])
    for name, pre in PRE_TOKENIZERS.items():
        same = len(steps) == len(pre.steps) and all(
            step.items() >= wanted.items() for step, wanted in zip(steps, pre.steps, strict=True)
        )
        if same and pre.ignore_merges == bool(model.get("ignore_merges")):
            return name
    raise FileError(
        "GGUF has no name for the pre-tokenizer of this tokenizer "
        f"({', '.join(step.get('type', 'none') for step in steps)}). Export the model without its tokenizer."
    )
