"""Why a text has these tokens: merge by merge, or path by path, with ids, bytes and offsets."""

from collections.abc import Iterator
from typing import Any

from pellucid.reference.tokenizers import bpe, unigram, wordpiece
from pellucid.text import alphabet
from pellucid.text.tokenizer import Tokenizer, show_blanks


def explain_tokens(tokenizer: Tokenizer, text: str, words: int = 40) -> Iterator[str]:
    """Yields the tokens of a text as a table, then how each of the first `words` words was split."""
    yield from table(tokenizer, text)
    model = getattr(tokenizer, "file", {}).get("model", {})
    explain_word = {"BPE": _bpe, "Unigram": _unigram, "WordPiece": _wordpiece}.get(model.get("type", ""))
    if explain_word is None:
        return
    before = tokenizer.library.pre_tokenizer  # type: ignore[attr-defined]
    found = [piece for piece, _ in before.pre_tokenize_str(text)] if before else [text]
    for word in found[:words]:
        yield ""
        yield from explain_word(word, model)
    if len(found) > words:
        yield f"\n… and {len(found) - words:,} more words"


def table(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yields the bytes per token, then one line for each token."""
    ids, places, size = tokenizer.encode(text), tokenizer.offsets(text), len(text.encode())
    rate = f", {size / len(ids):.2f} bytes per token" if ids else ""
    yield f"{size:,} bytes, {len(ids):,} tokens{rate}"
    if not ids:
        return
    rows = [("id", "token", "bytes", "at")]
    for id, (start, end) in zip(ids, places, strict=True):
        data = text.encode()[start:end].hex(" ")
        data = data if len(data) < 48 else data[:44] + " …"
        rows.append((str(id), tokenizer.visible(id), data, f"{start}–{end}"))
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
    yield f"{_format_bytes(data)}: {_parts(data[i : i + 1] for i in range(len(data)))}"
    for merge in merges:
        pair = " + ".join(map(_format_bytes, merge.pair))
        yield f"  merge {merge.rank:>6,}  {pair}  →  {_parts(merge.pieces)}"
    yield f"  no pair left to merge: {len(pieces)} token{'s' * (len(pieces) > 1)}"


def _unigram(word: str, model: dict[str, Any]) -> Iterator[str]:
    scores = {piece: float(score) for piece, score in model["vocab"]}
    path = unigram.best_path(word, scores)
    chosen = {(edge.start, edge.end) for edge in path}
    yield f"{_format_bytes(alphabet.to_bytes(word))}: ln p of every known piece; * is on the best path"
    for edge in sorted(unigram.lattice(word, scores)):
        mark = "*" if (edge.start, edge.end) in chosen else " "
        piece = _format_bytes(alphabet.to_bytes(edge.piece))
        yield f"  {mark} {edge.start}–{edge.end}  {piece:<14}{edge.score:9.4f}"
    total = " + ".join(f"({edge.score:.4f})" for edge in path)
    yield f"  best: {_parts(alphabet.to_bytes(edge.piece) for edge in path)}   {total} = {path[-1].total:.4f}"


def _wordpiece(word: str, model: dict[str, Any]) -> Iterator[str]:
    longest = int(model.get("max_input_chars_per_word", 100))
    mark = str(model.get("continuing_subword_prefix", "##"))
    pieces = wordpiece.encode(word, model["vocab"], model["unk_token"], mark, longest)
    yield f"{show_blanks(word)}: longest known piece first: {' '.join(pieces)}"


def _format_bytes(data: bytes) -> str:
    """Returns the bytes as text with visible spaces where they are UTF-8, else in hexadecimal."""
    try:
        return show_blanks(data.decode())
    except UnicodeDecodeError:
        return "<" + data.hex(" ") + ">"


def _parts(pieces: Any) -> str:
    return " ".join(_format_bytes(piece) for piece in pieces)
