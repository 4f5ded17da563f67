"""The `[data]` table of a recipe: where the text is, and how it becomes batches."""

from dataclasses import dataclass

from pellucid.text.corpus.bad_files import STOP

Paths = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the text is, and how it becomes batches."""

    path: Paths
    """The text to learn from. A file, a folder of texts, a pattern, or a list of them; conversations
    (.jsonl); or a folder of token files, `stories:LEVEL` or `task:NAME`.
    Example: my.txt"""
    split: str = "file"
    """Where one document ends: `file`, `line`, `paragraph`, `separator=TEXT` or `jsonl`. A row of tokens may
    hold the end of one document and the beginning of the next, with an end token between them.
    Example: paragraph"""
    on_bad_file: str = STOP
    """What a file does that cannot be read as text. `stop` refuses the run and lists all such files; `skip`
    omits them; `replace` puts U+FFFD for bytes that are not UTF-8, and counts them.
    Example: skip"""
    tokenizer: str = ""
    """A kind of tokenizer to train on the text, or a folder with one. Empty: the tokenizer that the text
    brings along, or else `bpe`.
    Example: characters"""
    vocab_size: int = 0
    """Number of tokens of a tokenizer that is trained. 0: chosen from the size of the text.
    Example: 8192"""
    batch_size: int = 32
    """Rows of one optimizer step, on all processes together.
    Example: 64"""
    validation: float | str = 0.1
    """Fraction held out for the validation loss, or the path of another text. Of
    few documents, the end of each is held out.
    Example: 0.05"""

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
