"""Why a text was cut into these tokens: merge by merge, or path by path, with the ids, bytes and places."""

from collections.abc import Iterator
from typing import Any

from pellucid.reference.tokenizers import bpe, unigram, wordpiece
from pellucid.text import alphabet
from pellucid.text.tokenizer import Tokenizer


def explained(tokenizer: Tokenizer, text: str, words: int = 40) -> Iterator[str]:
    """The tokens of a text in a table, then how each word was cut, for the first so many words."""
    yield from table(tokenizer, text)
    model = getattr(tokenizer, "file", {}).get("model", {})
    tell = {"BPE": _bpe, "Unigram": _unigram, "WordPiece": _wordpiece}.get(model.get("type", ""))
    if tell is None:
        return
    before = tokenizer.library.pre_tokenizer  # type: ignore[attr-defined]
    found = [piece for piece, _ in before.pre_tokenize_str(text)] if before else [text]
    for word in found[:words]:
        yield ""
        yield from tell(word, model)
    if len(found) > words:
        yield f"\n… and {len(found) - words:,} more words"


def table(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """One line per token, and how much text a token holds."""
    ids, places, size = tokenizer.encode(text), tokenizer.offsets(text), len(text.encode())
    rate = f", {size / len(ids):.2f} bytes per token" if ids else ""
    yield f"{size:,} bytes, {len(ids):,} tokens{rate}"
    if not ids:
        return
    rows = [("id", "token", "bytes", "at")]
    for id, (start, end) in zip(ids, places, strict=True):
        shown = tokenizer.bytes_of(id).decode("utf-8", "replace")
        held = text.encode()[start:end].hex(" ")
        rows.append((str(id), repr(shown), held if len(held) < 48 else held[:44] + " …", f"{start}–{end}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        yield (
            f"{row[0].rjust(widths[0])}  {row[1].ljust(widths[1])}  {row[2].ljust(widths[2])}  {row[3]}"
        ).rstrip()


def _bpe(word: str, model: dict[str, Any]) -> Iterator[str]:
    ranks = {}
    for rank, merge in enumerate(model["merges"]):
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        ranks[alphabet.to_bytes(left), alphabet.to_bytes(right)] = rank
    data = alphabet.to_bytes(word)
    pieces, merges = bpe.encode(data, ranks)
    yield f"{_shown(data)}: {_parts(data[i : i + 1] for i in range(len(data)))}"
    for merge in merges:
        left, right = merge.pair
        yield f"  merge {merge.rank:>6,}  {_shown(left)} + {_shown(right)}  →  {_parts(merge.pieces)}"
    yield f"  no pair left to merge: {len(pieces)} token{'s' * (len(pieces) > 1)}"


def _unigram(word: str, model: dict[str, Any]) -> Iterator[str]:
    scores = {piece: float(score) for piece, score in model["vocab"]}
    path = unigram.best_path(word, scores)
    chosen = {(edge.start, edge.end) for edge in path}
    yield f"{_shown(alphabet.to_bytes(word))}: ln p of every known piece; * is on the best path"
    for edge in sorted(unigram.lattice(word, scores)):
        mark = "*" if (edge.start, edge.end) in chosen else " "
        piece = _shown(alphabet.to_bytes(edge.piece))
        yield f"  {mark} {edge.start}–{edge.end}  {piece:<14}{edge.score:9.4f}"
    total = " + ".join(f"({edge.score:.4f})" for edge in path)
    yield f"  best: {_parts(alphabet.to_bytes(edge.piece) for edge in path)}   {total} = {path[-1].total:.4f}"


def _wordpiece(word: str, model: dict[str, Any]) -> Iterator[str]:
    longest = int(model.get("max_input_chars_per_word", 100))
    mark = str(model.get("continuing_subword_prefix", "##"))
    pieces = wordpiece.encode(word, model["vocab"], model["unk_token"], mark, longest)
    yield f"{word!r}: longest known piece first: {' '.join(pieces)}"


def _shown(data: bytes) -> str:
    """Bytes as text where they are text."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return "<" + data.hex(" ") + ">"


def _parts(pieces: Any) -> str:
    return " ".join(_shown(piece) for piece in pieces)
