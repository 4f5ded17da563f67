"""How byte-level tokenizers cut a text into words before merging: GGUF gives each way a name.

Each step cuts the pieces of the step before. The patterns are facts of the models that were trained with
them; llama.cpp and `tokenizers` both cut so, and a test holds the ids equal.
"""

from dataclasses import dataclass
from typing import Any

from pellucid.text.standard import GPT2_SPLIT

Step = dict[str, Any]

_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# What this does not match are words as well. Without an `invert` it is not taken for one that matches all.
_BLOOM = {"type": "Split", "pattern": {"Regex": r" ?[^(\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated"}


def _cut(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _modern(digits: str) -> tuple[Step, ...]:
    """One pattern for words, for so many digits at a time, and for the rest."""
    return _cut(rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}{_REST}"), _BYTES


_REST_OF: dict[str, Step] = {"ByteLevel": {"trim_offsets": True}, "Split": {"invert": True}, "Digits": {}}
"""What a step must say, though it changes nothing: cuts that isolate are the same either way."""


@dataclass(frozen=True)
class WordCut:
    """The steps; whether a word that is a token is taken whole, though merges may not lead to it; and
    whether a text begins with the bos token where the file does not say."""

    steps: tuple[Step, ...]
    whole_words: bool = False
    add_bos: bool = False

    def pre_tokenizer(self) -> Step:
        """As a `tokenizer.json` has it."""
        steps = [_REST_OF[step["type"]] | step for step in self.steps]
        return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


_WORDS = WordCut((_GPT2,))
_DIGITS = WordCut(({"type": "Digits", "individual_digits": True}, _GPT2))
_THREE_DIGITS = _modern(r"\p{N}{1,3}")
_ONE_DIGIT = WordCut(_modern(r"\p{N}"))

CUTS: dict[str, WordCut] = {
    "gpt-2": _WORDS,
    "smollm": _DIGITS,
    "llama-bpe": WordCut(_THREE_DIGITS, whole_words=True, add_bos=True),
    "qwen2": _ONE_DIGIT,
    "dbrx": WordCut(_THREE_DIGITS),
    "default": WordCut(
        (_cut(r"[\p{P}\$\+<=>\^~\|]+"), _cut(GPT2_SPLIT), _cut(r"\p{N}+"), _cut("[0-9][0-9][0-9]"), _BYTES)
    ),
    "bloom": WordCut((_BLOOM, _BYTES)),
    "codeshell": _DIGITS,
    "command-r": _DIGITS,
    "exaone": _DIGITS,
    "jais": _WORDS,
    "llama-v3": WordCut(_THREE_DIGITS, whole_words=True, add_bos=True),
    "llama3": WordCut(_THREE_DIGITS, whole_words=True, add_bos=True),
    "mpt": _WORDS,
    "olmo": _WORDS,
    "phi-2": _WORDS,
    "refact": _DIGITS,
    "roberta-bpe": _WORDS,
    "smaug-bpe": WordCut(_THREE_DIGITS),
    "stablelm2": _ONE_DIGIT,
    "starcoder": _DIGITS,
}
"""By the name under `tokenizer.ggml.pre`. Where several mean the same, the first is the one written."""
