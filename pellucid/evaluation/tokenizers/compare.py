"""`pellucid.compare_tokenizers`: tokenizers, named as every command names them, on the same texts."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pellucid.base.arguments import check_function, check_int, check_list, check_path, check_text
from pellucid.base.errors import PellucidError
from pellucid.config.cost import Cost, cost_of_unembedding
from pellucid.evaluation.tokenizers import comparison as library
from pellucid.formats.resolve import open_tokenizer, read_config
from pellucid.text.tokenizer import Tokenizer

BYTES = "bytes"
"""The tokenizer that needs no training, by its name."""


def compare_tokenizers(
    *tokenizers: str | os.PathLike[str],
    on: Sequence[str | os.PathLike[str]],
    d_model: int | None = None,
    field: str = "text",
    on_bad_file: str = "stop",
    progress: Callable[[int], None] = lambda _: None,
) -> library.TokenizerComparison:
    """Returns how tokenizers divide the same texts: bytes per token by domain and by script, unknown tokens,
    lost bytes, and the cost of the output layer.

    A tokenizer is a model, a folder or a `tokenizer.json` file, or "bytes"; `on` lists files, folders and
    patterns, and "stories" with or without a level. The output layer W_U [V C] is that of the model, or that
    of a model with `d_model` channels.

    >>> import pellucid
    >>> found = pellucid.compare_tokenizers("bytes", on=["stories:tiny"])
    >>> found.tokenizers[0].total.bytes_per_token
    1.0
    """
    width = None if d_model is None else check_int("d_model", d_model, least=1, most=1 << 24)
    named = [on] if isinstance(on, str | os.PathLike) else check_list("on", on, "paths of texts")
    check_function("progress", progress)
    inputs = []
    for name in dict.fromkeys(check_path("a tokenizer", one) for one in tokenizers):
        tokenizer = _open(name)
        inputs.append(library.TokenizerInput(name, tokenizer, _find_unembedding(name, tokenizer, width)))
    return library.compare_tokenizers(
        inputs,
        [check_path("on", one) for one in named],
        field=check_text("field", field),
        on_bad_file=on_bad_file,
        progress=progress,
    )


def _open(name: str) -> Tokenizer:
    if name == BYTES and not Path(name).exists():
        from pellucid.text.kinds import train

        return train(BYTES, [])
    return open_tokenizer(name)


def _find_unembedding(name: str, tokenizer: Tokenizer, d_model: int | None) -> Cost | None:
    """Returns the cost of W_U: with `d_model` channels, else that of the model; None without a model."""
    if d_model is not None:
        return cost_of_unembedding(tokenizer.vocab_size, d_model)
    try:
        config = read_config(name)
    except PellucidError:  # a tokenizer without a model
        return None
    return cost_of_unembedding(config.vocab_size, config.d_model)
