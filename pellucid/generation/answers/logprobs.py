r"""Log-probabilities as OpenAI's two endpoints return them.

A token is its text; one that is not whole characters is `bytes:` and its bytes, `bytes:\xe2\x96`.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pellucid.generation.answers.lines import ScoredToken
from pellucid.text.tokenizer import Tokenizer

LogprobsTable = dict[str, list[Any]]
"""What stands under `logprobs` in a choice: lists with an entry for each token."""


class TokenTexts(dict[int, str]):
    """The text of every token by its id; each is made when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._count = 0 if tokenizer is None else tokenizer.vocab_size
        self._bytes: dict[int, list[int] | None] = {}

    def __missing__(self, id: int) -> str:
        data = self.get_bytes(id)
        self[id] = text = f"#{id}" if data is None else format_bytes_text(bytes(data))
        return text

    def get_bytes(self, id: int) -> list[int] | None:
        """Returns the bytes of a token; None of an id that the tokenizer does not have."""
        if id not in self._bytes:
            tokenizer = self._tokenizer if id < self._count else None
            self._bytes[id] = None if tokenizer is None else list(tokenizer.bytes_of(id))
        return self._bytes[id]


def format_bytes_text(data: bytes) -> str:
    r"""Returns the text of a token from its bytes.

    >>> print(format_bytes_text(b" the"), format_bytes_text(b"\xe2\x96"))
     the bytes:\xe2\x96
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def make_completion_logprobs(texts: TokenTexts, tokens: Sequence[ScoredToken], shift: int) -> LogprobsTable:
    """Returns the four lists of `/v1/completions`; `shift` is added to the offsets.

    The token itself is always among `top_logprobs`, with the very same number. Where two tokens have one
    text, the more probable one has the key, unless the other is the token itself.
    """
    return {
        "tokens": [texts[token.id] for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_make_top(texts, token) for token in tokens],
        "text_offset": [max(0, token.offset + shift) for token in tokens],
    }


def _make_top(texts: TokenTexts, token: ScoredToken) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for id, logprob in token.top:
        found.setdefault(texts[id], logprob)
    found[texts[token.id]] = token.logprob
    return found


def make_chat_logprobs(texts: TokenTexts, tokens: Sequence[ScoredToken], shift: int) -> LogprobsTable:
    """Returns the list of `/v1/chat/completions`, which has no offsets."""
    content = [
        {
            **_make_entry(texts, token.id, token.logprob),
            "top_logprobs": [_make_entry(texts, *pair) for pair in token.top],
        }
        for token in tokens
    ]
    return {"content": content}


def _make_entry(texts: TokenTexts, id: int, logprob: float | None) -> dict[str, Any]:
    return {"token": texts[id], "logprob": logprob, "bytes": texts.get_bytes(id)}


def join_logprobs(parts: Iterable[LogprobsTable]) -> LogprobsTable | None:
    """Returns one table of some whose lists go on; None where there is none.

    >>> join_logprobs([{"content": [1]}, {"content": [2, 3]}])
    {'content': [1, 2, 3]}
    """
    found: LogprobsTable | None = None
    for part in parts:
        found = part if found is None else {key: found[key] + values for key, values in part.items()}
    return found


async def encode_logprobs(parts: Iterable[LogprobsTable]) -> str:
    """Returns the same as JSON; other requests have their turn after each part."""
    columns: dict[str, list[str]] = {}
    for part in parts:
        for key, values in part.items():
            columns.setdefault(key, []).append(json.dumps(values, allow_nan=False)[1:-1])
        await asyncio.sleep(0)
    lists = (f'"{key}": [{", ".join(filter(None, texts))}]' for key, texts in columns.items())
    return f"{{{', '.join(lists)}}}" if columns else "null"


def make_explained_tokens(texts: TokenTexts, tokens: Iterable[ScoredToken]) -> list[dict[str, Any]]:
    """Returns what `explain` adds for each token: how sure the model was, and how probable its choice.

    Entropy and surprisal are in nats; the rank of the most probable token is 0.
    """
    return [
        {
            "token": texts[token.id],
            "id": token.id,
            "entropy": token.entropy,
            "rank": token.rank,
            "surprisal": token.surprisal,
        }
        for token in tokens
    ]
