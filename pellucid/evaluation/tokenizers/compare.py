"""Tokenizers compared on the same texts: bytes per token by domain and script, losses, and the output layer.

Each given file, folder or pattern is a domain, and so are the held-out stories of a level. Bytes per token
compare tokenizers; perplexities of models with different tokenizers do not compare, because a token is not
the same piece of text.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pellucid.base.arguments import check_function, check_int, check_list, check_path, check_text
from pellucid.base.errors import ConfigError, PellucidError, TokenError, UsageError, unknown
from pellucid.base.lazy import attach
from pellucid.config.cost import Cost, cost_of_unembedding
from pellucid.data.generated import stories as corpus
from pellucid.data.sources.generated import HELD_OUT, STORIES
from pellucid.evaluation.tokenizers.counts import NOTHING, SCRIPTS, TokenizationCounts, count_tokens
from pellucid.formats.resolve import open_tokenizer, read_config
from pellucid.report.report import Reported
from pellucid.text.chunking import can_chunk, chunks
from pellucid.text.corpus import Corpus
from pellucid.text.corpus.bad_files import STOP
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import WordLevelTokenizer

BYTES = "bytes"
"""The tokenizer that needs no training, by its name."""
Progress = Callable[[int], None]
"""Called with the bytes of text of each document that all tokenizers have encoded."""


@dataclass(frozen=True)
class TokenizerInput:
    """A tokenizer to compare, and the cost of the output layer that goes with it where it is known."""

    name: str
    tokenizer: Tokenizer
    unembedding: Cost | None = None


@dataclass(frozen=True, eq=False)
class TokenizerUse:
    """One tokenizer on the texts."""

    name: str
    kind: str
    vocab_size: int
    domains: Mapping[str, TokenizationCounts]
    unembedding: Cost | None
    """Parameters of W_U, and its operations for one token."""
    refuses: bool
    """Whether it has no unknown token, so that it refuses what is not in its vocabulary."""

    @property
    def total(self) -> TokenizationCounts:
        return sum(self.domains.values(), NOTHING)

    @property
    def unembedding_flops_per_byte(self) -> float | None:
        """Operations of W_U for each byte of text: FLOP per token · tokens / bytes."""
        total = self.total
        return None if self.unembedding is None else self.unembedding.flops * total.tokens / total.bytes

    def to_data(self) -> dict[str, Any]:
        cost = self.unembedding
        layer = None
        if cost is not None:
            per_byte = self.unembedding_flops_per_byte
            layer = {"parameters": cost.parameters, "flop_per_token": cost.flops, "flop_per_byte": per_byte}
        return {
            "name": self.name,
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "refuses_unknown": self.refuses,
            **_as_data(self.total),
            "domains": {name: _as_data(counts) for name, counts in self.domains.items()},
            "output_layer": layer,
        }


@dataclass(frozen=True, eq=False)
class TokenizerComparison(Reported):
    """Several tokenizers on the same texts, in the order given."""

    tokenizers: Sequence[TokenizerUse]

    def to_data(self) -> dict[str, Any]:
        """Returns all numbers as plain data, for JSON."""
        return {
            "format": "pellucid-tokenizer-comparison",
            "version": 1,
            "tokenizers": [one.to_data() for one in self.tokenizers],
        }


attach(TokenizerComparison, {"pellucid.evaluation.tokenizers.report": ("report",)})


def _as_data(counts: TokenizationCounts) -> dict[str, Any]:
    scripts = zip(SCRIPTS, counts.script_bytes, counts.script_tokens, strict=True)
    return {
        "documents": counts.documents,
        "bytes": counts.bytes,
        "tokens": counts.tokens,
        "bytes_per_token": _finite(counts.bytes_per_token),
        "unknown_tokens": counts.unknown,
        "documents_refused": counts.refused_documents,
        "lost_bytes": counts.lost_bytes,
        "documents_decoded_exactly": counts.exact_documents,
        "single_byte_tokens": counts.single_bytes,
        "partial_character_tokens": counts.partial_characters,
        "scripts": {
            name: {"bytes": int(size), "tokens": float(tokens)} for name, size, tokens in scripts if size
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def compare_tokenizers(
    *tokenizers: str | os.PathLike[str],
    on: Sequence[str | os.PathLike[str]],
    d_model: int | None = None,
    field: str = "text",
    on_bad_file: str = "stop",
    progress: Callable[[int], None] = lambda _: None,
) -> TokenizerComparison:
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
        inputs.append(TokenizerInput(name, tokenizer, _find_unembedding(name, tokenizer, width)))
    return count_texts(
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


def count_texts(
    tokenizers: Sequence[TokenizerInput],
    texts: Sequence[str],
    *,
    field: str = "text",
    on_bad_file: str = STOP,
    progress: Progress = lambda _: None,
) -> TokenizerComparison:
    """Returns how each tokenizer divides the texts, which are read once, document by document."""
    if not tokenizers or not texts:
        raise UsageError("a comparison needs one or more tokenizers, and one or more texts to compare on.")
    if len({one.name for one in tokenizers}) < len(tokenizers):
        raise UsageError("two tokenizers have the same name: give each of them once.")
    complete = [
        one.tokenizer.with_unknown() if isinstance(one.tokenizer, WordLevelTokenizer) else one.tokenizer
        for one in tokenizers
    ]
    domains = {name: _read_domain(name, field, on_bad_file) for name in texts}
    counts = [dict.fromkeys(domains, NOTHING) for _ in tokenizers]
    for domain, documents in domains.items():
        for text in documents:
            for one, tokenizer, found in zip(tokenizers, complete, counts, strict=True):
                try:
                    counted = count_document(tokenizer, text)
                except TokenError as error:
                    raise TokenError(f"{one.name} cannot encode {domain}: {error}") from None
                found[domain] += counted if tokenizer is one.tokenizer else _count_refusal(counted)
            progress(len(text.encode()))
    return TokenizerComparison(
        [
            TokenizerUse(
                one.name,
                one.tokenizer.kind,
                one.tokenizer.vocab_size,
                found,
                one.unembedding,
                tokenizer is not one.tokenizer,
            )
            for one, tokenizer, found in zip(tokenizers, complete, counts, strict=True)
        ]
    )


def count_document(tokenizer: Tokenizer, text: str) -> TokenizationCounts:
    """Returns the counts of a document, chunk by chunk where the tokenizer's ids do not depend on that."""
    pieces = [count_tokens(tokenizer, piece) for piece in (chunks(text) if can_chunk(tokenizer) else [text])]
    exact = int(all(piece.exact_documents for piece in pieces))
    return replace(sum(pieces, NOTHING), documents=1, exact_documents=exact)


def _count_refusal(counts: TokenizationCounts) -> TokenizationCounts:
    """Returns the counts of a document for a tokenizer that was given an unknown token to be compared at all:
    it has none of its own, and refuses a document that needs one."""
    return replace(counts, unknown=0, refused_documents=int(counts.unknown > 0))


def _read_domain(name: str, field: str, on_bad_file: str) -> Iterator[str]:
    """Returns the documents of one domain; raises at once where there is none."""
    kind, _, level = name.partition(":")
    if kind == "stories" and not Path(name).exists():
        level = level or "easy"
        if level not in corpus.LEVELS:
            raise ConfigError(unknown("the level of stories", level, corpus.LEVELS))
        return (story.text for story in corpus.stories(level, HELD_OUT, count=STORIES))
    found = Corpus([name], field=field, on_bad_file=on_bad_file, unique=False, setting="--on-bad-file ")
    found.check()
    return (document.text for document in found.documents())
