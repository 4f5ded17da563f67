"""Small corpora and tokenizers that the tests make themselves."""

import functools
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pellucid.data.generated.stories import Story, stories
from pellucid.data.generated.stories.exact import Position
from pellucid.data.generated.stories.generate import build_story
from pellucid.data.generated.stories.grammar import Option
from pellucid.data.generated.stories.levels import grammar
from pellucid.data.prepare import prepare
from pellucid.data.tokens import TokenFolder, Tokens
from pellucid.text.corpus import Corpus
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special, Tokenizer

WORDS = (
    *("the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "over", "hills", "far", "away"),
    *("—", "naïve", "café", "42", "times,", "said", "I'll", "go"),
)


def document(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words)) + draw.choice([".", "!", "\n", " \n\n", "?"])


def text_file(path: Path, documents: int, seed: int = 0, longest: int = 60) -> Path:
    """One document a line."""
    draw = random.Random(seed)
    lines = [document(draw, draw.randint(1, longest)).replace("\n", " ") + f" {i}" for i in range(documents)]
    path.write_text("\n".join(lines), "utf-8")
    return path


@functools.cache
def _train(kind: str, special: Special) -> Tokenizer:
    return train(kind, [" ".join(WORDS) * 3 + " 0123456789.!?"], 300, special)


def tokenizer_folder(path: Path, kind: str = "bpe", special: Special | None = None) -> Path:
    _train(kind, special or Special("<end>", "<end>", "<pad>")).save(path, force=True)
    return path


def prepared(folder: Path, documents: int = 40, shard_tokens: int = 200, validation: float = 0.0) -> Path:
    """A folder of several shards."""
    text = text_file(folder / "text.txt", documents)
    corpus = Corpus([text], split="line", validation=validation)
    tokenizer = tokenizer_folder(folder / "tokenizer")
    prepare(corpus, tokenizer, folder / "out", workers=1, shard_tokens=shard_tokens)
    return folder / "out"


@functools.cache
def _master(
    documents: int, shard_tokens: int, validation: float
) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    folder = tempfile.TemporaryDirectory()
    return folder, prepared(Path(folder.name), documents, shard_tokens, validation)


def made_before(documents: int = 40, shard_tokens: int = 200, validation: float = 0.0) -> Path:
    """The same, made once: for tests that only read. Its text and its tokenizer stand beside it."""
    return _master(documents, shard_tokens, validation)[1]


def copy_of_prepared(folder: Path, documents: int = 40, shard_tokens: int = 200) -> Path:
    """The same, copied from one that was made before: for tests that damage it."""
    shutil.copytree(made_before(documents, shard_tokens), folder / "out")
    return folder / "out"


def tokens(documents: int = 40, shard_tokens: int = 200) -> Tokens:
    return TokenFolder(made_before(documents, shard_tokens))["train"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@functools.cache
def drawn(level: str) -> tuple[Story, ...]:
    """Stories of one seed, drawn once for all that is said of a sample."""
    return tuple(stories(level, 5, count=12_000))


def every_story(level: str) -> Iterator[Story]:
    """Yields all stories of a level, one for each derivation; for levels whose `count_stories` is small."""
    yield from map(build_story, _derivations(Position(grammar(level).start, 0, None), {"": ""}))


def _derivations(place: Position | None, forms: dict[str, str]) -> Iterator[tuple[Option, ...]]:
    if place is None:
        yield ()
        return
    template, step, rest = place
    if step == len(template.steps):
        yield from _derivations(rest, forms)
        return
    _, key, tables = template.steps[step]
    after = Position(template, step + 1, rest)
    for option in tables[forms[key]].options:
        for made in _derivations(Position(option.template, 0, after), forms | option.forms):
            yield option, *made
