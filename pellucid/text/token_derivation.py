"""Why a text has these tokens: merge by merge, or path by path, with ids, bytes and offsets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pellucid.reference.tokenizers import best_path, encode_bpe, encode_wordpiece, lattice
from pellucid.text.standard import to_bytes
from pellucid.text.tokenizer import Tokenizer, show_blanks

# ---- the tokens


class TextToken(NamedTuple):
    """A token of a text, for display, and the bytes of the text from `start` to `end` that it stands for."""

    id: int
    label: str
    data: bytes
    start: int
    end: int


def list_tokens(tokenizer: Tokenizer, text: str) -> list[TextToken]:
    """Returns the tokens of a text."""
    data, ids = text.encode(), tokenizer.encode(text)
    return [
        TextToken(id, tokenizer.visible(id), data[start:end], start, end)
        for id, (start, end) in zip(ids, tokenizer.offsets(text), strict=True)
    ]


# ---- how a word was divided


@dataclass(frozen=True)
class WordSplit:
    """A word, its letters and its tokens for display, and how the tokens came about.

    `how` is "merges": rows have rank, left, right, and the pieces after the merge; "lattice": every known
    piece from start to end, its score ln p, and whether it is on the best path; or "longest piece first".
    """

    word: str
    how: str
    letters: list[str]
    rows: list[dict[str, Any]]
    pieces: list[str]


class WordSplitter:
    """Divides words as a tokenizer's file says, with the readable twin of the fast algorithm."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.library = getattr(tokenizer, "library", None)
        self.model: dict[str, Any] = getattr(tokenizer, "file", {}).get("model", {})
        self.is_byte_level = bool(getattr(tokenizer, "byte_level", False))
        self.table: Mapping[Any, Any] = {}
        kinds = {"BPE": self._split_bpe, "Unigram": self._split_unigram, "WordPiece": self._split_wordpiece}
        self.split: Callable[[str], WordSplit] | None = kinds.get(self.model.get("type", ""))
        """Returns how one of `words` was divided; None where a word is one token by itself."""
        if self.split == self._split_bpe:
            pairs = (m if isinstance(m, list) else m.split(" ") for m in self.model["merges"])
            self.table = {(left, right): rank for rank, (left, right) in enumerate(pairs)}
        elif self.split == self._split_unigram:
            self.table = {piece: float(score) for piece, score in self.model["vocab"]}

    def words(self, text: str) -> list[str]:
        """Returns the words of a text, which are divided by themselves, in the letters of the file."""
        if self.split is None or self.library is None:
            return []
        if self.library.normalizer:
            text = self.library.normalizer.normalize_str(text)
        before = self.library.pre_tokenizer
        return [word for word, _ in before.pre_tokenize_str(text)] if before else [text] * bool(text)

    def _split_bpe(self, word: str) -> WordSplit:
        pieces, merges = encode_bpe(word, self.table)
        rows = [
            {
                "rank": merge.rank,
                "left": self.show(merge.pair[0]),
                "right": self.show(merge.pair[1]),
                "pieces": self._show_all(merge.pieces),
            }
            for merge in merges
        ]
        return WordSplit(self.show(word), "merges", self._show_all(word), rows, self._show_all(pieces))

    def _split_unigram(self, word: str) -> WordSplit:
        path = best_path(word, self.table)
        chosen = {(edge.start, edge.end) for edge in path}
        rows = [
            {
                "start": edge.start,
                "end": edge.end,
                "piece": self.show(edge.piece),
                "score": edge.score,
                "is_best": (edge.start, edge.end) in chosen,
            }
            for edge in sorted(lattice(word, self.table))
        ]
        pieces = self._show_all([edge.piece for edge in path])
        return WordSplit(self.show(word), "lattice", self._show_all(word), rows, pieces)

    def _split_wordpiece(self, word: str) -> WordSplit:
        longest = int(self.model.get("max_input_chars_per_word", 100))
        mark = str(self.model.get("continuing_subword_prefix", "##"))
        found = encode_wordpiece(word, self.model["vocab"], self.model["unk_token"], mark, longest)
        pieces = [show_blanks(piece) for piece in found]
        return WordSplit(show_blanks(word), "longest piece first", list(show_blanks(word)), [], pieces)

    def show(self, piece: str) -> str:
        """Returns a piece as text with visible spaces; bytes that are not UTF-8 in hexadecimal."""
        if not self.is_byte_level:
            return show_blanks(piece.replace("▁", " "))
        data = to_bytes(piece)
        try:
            return show_blanks(data.decode())
        except UnicodeDecodeError:
            return "<" + data.hex(" ") + ">"

    def _show_all(self, pieces: Sequence[str]) -> list[str]:
        return [self.show(piece) for piece in pieces]


@lru_cache(maxsize=2)
def make_splitter(tokenizer: Tokenizer) -> WordSplitter:
    """Returns the splitter of a tokenizer; the table of its merges is built once."""
    return WordSplitter(tokenizer)


# ---- as text


def explain_tokens(tokenizer: Tokenizer, text: str, words: int = 40) -> Iterator[str]:
    """Yields the tokens of a text as a table, then how each of the first `words` words was split."""
    yield from table(tokenizer, text)
    splitter = make_splitter(tokenizer)
    if splitter.split is None:
        return
    found = splitter.words(text)
    for word in found[:words]:
        yield ""
        split = splitter.split(word)
        yield from _FORMATS[split.how](split)
    if len(found) > words:
        yield f"\n… and {len(found) - words:,} more words"


def table(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yields the bytes per token, then one line for each token."""
    tokens, size = list_tokens(tokenizer, text), len(text.encode())
    rate = f", {size / len(tokens):.2f} bytes per token" if tokens else ""
    yield f"{size:,} bytes, {len(tokens):,} tokens{rate}"
    if not tokens:
        return
    rows = [("id", "token", "bytes", "at")]
    for token in tokens:
        data = token.data.hex(" ")
        data = data if len(data) < 48 else data[:44] + " …"
        rows.append((str(token.id), token.label, data, f"{token.start}–{token.end}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        yield (
            f"{row[0].rjust(widths[0])}  {row[1].ljust(widths[1])}  {row[2].ljust(widths[2])}  {row[3]}"
        ).rstrip()


def _format_merges(split: WordSplit) -> Iterator[str]:
    yield f"{split.word}: {' '.join(split.letters)}"
    for row in split.rows:
        yield f"  merge {row['rank']:>6,}  {row['left']} + {row['right']}  →  {' '.join(row['pieces'])}"
    yield f"  no pair left to merge: {len(split.pieces)} token{'s' * (len(split.pieces) > 1)}"


def _format_lattice(split: WordSplit) -> Iterator[str]:
    yield f"{split.word}: ln p of every known piece; * is on the best path"
    for row in split.rows:
        mark = "*" if row["is_best"] else " "
        yield f"  {mark} {row['start']}–{row['end']}  {row['piece']:<14}{row['score']:9.4f}"
    scores = [row["score"] for row in split.rows if row["is_best"]]
    if not scores:
        yield "  no path of known pieces: the unknown token"
        return
    total = " + ".join(f"({score:.4f})" for score in scores)
    yield f"  best: {' '.join(split.pieces)}   {total} = {sum(scores):.4f}"


def _format_longest(split: WordSplit) -> Iterator[str]:
    yield f"{split.word}: longest known piece first: {' '.join(split.pieces)}"


_FORMATS = {"merges": _format_merges, "lattice": _format_lattice, "longest piece first": _format_longest}
