"""The text that stands at each place of a trace's axes: its tokens, and the vocabulary."""

from collections.abc import Sequence

from pellucid.text.tokenizer import Tokenizer


def labels(
    tokenizer: Tokenizer | None, vocab_size: int, ids: Sequence[int], raw: bool = False
) -> dict[str, list[str]]:
    """Returns the labels of the axes t, s and v: tokens with a mark for each space, or `raw`, as the
    tokenizer's file writes them; numbers where a token has no text."""

    def text(id: int) -> str:
        if tokenizer is None or id >= tokenizer.vocab_size:
            return str(id)
        return tokenizer.token(id) if raw else tokenizer.visible(id)

    tokens = [text(id) for id in ids]
    return {"t": tokens, "s": tokens, "v": [text(id) for id in range(vocab_size)]}
