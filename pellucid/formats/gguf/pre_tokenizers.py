"""Pre-tokenizers of byte-level BPE, by their names in GGUF: they split a text into words before merging.

Each step splits the pieces of the step before. llama.cpp and `tokenizers` use the same patterns, and a test
holds the ids equal.
"""

from dataclasses import dataclass
from typing import Any

from pellucid.text.standard import GPT2_SPLIT

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
