"""The `[data]` table of a recipe: where the text is, and how it becomes batches."""

import math
from dataclasses import dataclass
from typing import Annotated

from pellucid.base.arguments import LARGEST_VOCABULARY
from pellucid.base.errors import ConfigError
from pellucid.base.formatting import pluralize
from pellucid.base.schema import OneOf, Range
from pellucid.text.corpus.bad_files import CHOICES, STOP

Paths = str | tuple[str, ...]
ROWS = ("windows", "packed", "padded", "streams")
MIXED_ROWS = ("windows", "packed")
"""Kinds of rows that are independent of each other, so that a mixture can draw one at a time."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the text is, and how it becomes batches."""

    path: Paths
    """The text to learn from. A file, a folder of texts, a pattern, or a list of them; conversations
    (.jsonl); or a folder of token files, `stories:LEVEL` or `task:NAME`.
    Example: my.txt"""
    split: str = "file"
    """Where one document ends: `file`, `line`, `paragraph`, `separator=TEXT` or `jsonl`. Documents are
    separated by an end token; `rows` decides whether they see each other.
    Example: paragraph"""
    rows: Annotated[str, OneOf(*ROWS)] = "windows"
    """How tokens are cut into rows. `windows`: the next context_length tokens, wherever documents end, so
    that a document sees the end of the one before it in its row. `packed`: whole documents one after the
    other; attention is masked so that none sees another, and positions restart in each. `padded`: one
    document to a row, with padding after it. `streams`: each row continues the same row of the batch before.
    Conversations always come one to a row.
    Example: packed"""
    mixture_weights: tuple[float, ...] = ()
    """Sampling weights of the texts in `path`, one each: every row is drawn from one of them. Empty: all
    texts are read as one, each token once in an epoch.
    Example: [0.7, 0.3]"""
    on_bad_file: Annotated[str, OneOf(*CHOICES)] = STOP
    """What a file does that cannot be read as text. `stop` refuses the run and lists all such files; `skip`
    omits them; `replace` puts U+FFFD for bytes that are not UTF-8, and counts them.
    Example: skip"""
    tokenizer: str = ""
    """A kind of tokenizer to train on the text, or a folder with one. Empty: the tokenizer that the text
    brings along, or else `bpe`.
    Example: characters"""
    vocab_size: Annotated[int, Range(0, LARGEST_VOCABULARY)] = 0
    """Number of tokens of a tokenizer that is trained. 0: chosen from the size of the text.
    Example: 8192"""
    epochs: Annotated[int, Range(0, 2**20)] = 0
    """Length of the run in passes over the training data, instead of `steps`. 0: `steps` decides. The steps
    are computed when the text is encoded, and written into the run's recipe.
    Example: 3"""
    batch_size: Annotated[int, Range(1, 2**24)] = 32
    """Rows of one optimizer step, on all processes together.
    Example: 64"""
    validation: Annotated[float, Range(0, 0.9)] | str = 0.1
    """Fraction held out for the validation loss, or the path of another text. Of
    few documents, the end of each is held out.
    Example: 0.05"""

    def __post_init__(self) -> None:
        if not self.path:
            raise ConfigError("data.path names no text: give a path, or a list of paths.")
        if not isinstance(self.path, str) and len(self.path) == 1:
            object.__setattr__(self, "path", self.path[0])
        weights, count = self.mixture_weights, len(self.paths)
        if not weights:
            return
        if len(weights) != count:
            raise ConfigError(
                f"data.mixture_weights has {pluralize(len(weights), 'weight')}, and data.path "
                f"{pluralize(count, 'text')}: give one weight for each text."
            )
        if min(weights) < 0 or not 0 < sum(weights) < math.inf:  # NaN makes the sum NaN
            raise ConfigError(
                f"data.mixture_weights={list(weights)} must be numbers from 0, and their sum finite and "
                "above 0."
            )
        if self.epochs:
            raise ConfigError(
                f"data.epochs={self.epochs} does not go with data.mixture_weights, whose texts have epochs "
                "of different lengths: give steps instead."
            )
        if self.rows not in MIXED_ROWS:
            raise ConfigError(
                f"data.rows={self.rows} does not go with data.mixture_weights, which draws each row by "
                f"itself: use {' or '.join(MIXED_ROWS)}."
            )
        if isinstance(self.validation, str):
            raise ConfigError(
                f"data.validation={self.validation!r} does not go with data.mixture_weights, of which each "
                "text has its own validation part: give a fraction, such as 0.1."
            )

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def shown_paths(self) -> str:
        """The texts as messages call them.

        >>> DataSettings(path=("a.txt", "b.txt", "c.txt")).shown_paths
        'a.txt and 2 more'
        """
        first, *more = self.paths
        return f"{first} and {len(more)} more" if more else first
