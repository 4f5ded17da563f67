"""The convention card: everything about a model that its weights' shapes do not tell.

A file that is read with the wrong convention loads without complaint and writes almost the same text; so
each choice is printed, with why it matters. `probe` measures how much.
"""

import dataclasses
import math
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import parts
from pellucid.config import BIAS_PLACES, ModelConfig
from pellucid.cost import cost, total
from pellucid.format import format_bytes, pluralize
from pellucid.parts import Part
from pellucid.pretrained import Pretrained, Provenance
from pellucid.reference.ops import find_op
from pellucid.text.tokenizer import Tokenizer

SMALL = 10_000
"""Parameters of a model that is read whole for its card."""


@dataclass(frozen=True)
class Row:
    label: str
    value: str
    why: str
    formula: str = ""


@dataclass(frozen=True)
class Card:
    name: str
    rows: tuple[Row, ...]

    def __getitem__(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)


def card(name: str, config: ModelConfig, opened: Pretrained | None = None) -> Card:
    """The card of a shape, or of an opened model with its tokenizer and its file."""
    rows = [*_sizes(config), *_choices(config), *_attention(config), *_biases(config)]
    if opened:
        rows = [*_origin(opened.provenance), *rows, *_orientation(opened), *_text(opened)]
    rows += _memory(config)
    if opened and opened.provenance.types:
        rows += _storage(config, opened.provenance)
    return Card(name, tuple(rows))


def lines(card: Card, width: int = 110) -> Iterator[str]:
    """The card in three columns; the last says why it matters."""
    first = max(len(row.label) for row in card.rows) + 2
    second = (width - first) * 5 // 9
    yield card.name
    for row in card.rows:
        value = [*_wrapped(row.value, second - 2), *_wrapped(row.formula, second - 2)]
        why = _wrapped(row.why, max(width - first - second, 24))
        for i in range(max(len(value), len(why))):
            left = row.label if i == 0 else ""
            middle, right = (texts[i] if i < len(texts) else "" for texts in (value, why))
            yield f"{left:<{first}}{middle:<{second}}{right}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 24))


# ---- what the config says


def _sizes(config: ModelConfig) -> Iterator[Row]:
    yield Row("layers", _number(config.n_layer), "blocks of attention and feed-forward, one after the other")
    yield Row("width", f"{config.d_model:,} channels", "C, the residual stream")
    if not config.mlp.is_none:
        yield Row("feed-forward", f"{config.d_ff:,} hidden channels", "F; with a gate, three matrices of it")
    yield Row("vocabulary", f"{config.vocab_size:,} tokens", "V, the rows of the embedding")
    yield Row("context", f"{config.context_length:,} tokens", "positions beyond it were never trained")


WHY = {
    "positions": "positions read wrongly change no shape, and text still comes out",
    "positions.rope": "pairs: channels 2i, 2i + 1; halves: i, i + D/2. No shape tells which, nor the base",
    "mask": "without it a position reads the token that it should guess",
    "attention": "how scores become shares; another way reads the same weights without complaint",
    "score_cap": "left out, large scores win over all others",
    "placement": "norms elsewhere have the same shapes, and the same weights mean something else",
    "embed_norm": "left out, the first block reads a stream of another size",
    "qk_norm": "left out, scores have another size in every layer",
    "logit_cap": "left out, the most likely token is too likely",
    "norm": "another kind or eps shifts every layer a little, and nothing fails",
    "mlp": "the curve is not in the weights, and a gate has the shape of what it gates: a mix-up loads",
    "residual": "what a sub-layer gives is added to what it read",
    "output": "how the heads are mixed before they join the stream; stored transposed in places",
    "unembedding": "a file without a matrix of its own for it means tied; none may be made up",
}
"""Why a choice matters, by its field in the config, or by field and kind; a new choice needs none."""
ALWAYS = ("positions", "mask", "norm", "mlp", "residual", "output")
"""Choices that are worth a line of their own where there is none, too."""


def _choices(config: ModelConfig) -> Iterator[Row]:
    for key, part in config.parts().items():
        if not part.is_none or key in ALWAYS:
            why = WHY.get(f"{key}.{part.kind}", WHY.get(key, "") if not part.is_none else "")
            yield Row(key, _told(part), why, _idea(part))
    without = [key for key, part in config.parts().items() if part.is_none and key not in ALWAYS]
    if without:
        yield Row("without", ", ".join(without), "each would change what the same weights compute")
    if not config.mlp.is_none:
        op = find_op(config.mlp.activation)
        formula = op.formula if isinstance(op.formula, str) else op.doc
        told = formula.replace("{y}", "A(x)").replace("{0}", "x")
        yield Row(
            "activation",
            f"{op.name}: {told}",
            "near relations go by the same name: a wrong one reads like a worse model",
        )


def _told(part: Part) -> str:
    """A part's kind and settings: rope, base 10,000, layout halves."""
    settings = dataclasses.asdict(part).items()
    return ", ".join([part.kind, *(f"{key} {_number(value)}" for key, value in settings)])


def _idea(part: Part) -> str:
    """Returns the first line of a kind's docstring: its file's, or its class's where the family is a
    module."""
    kind = type(part)
    home = sys.modules[kind.__module__]
    doc = kind.__doc__ if home is parts.home(part.family) else home.__doc__
    return (doc or "").strip().partition("\n")[0]


def _attention(config: ModelConfig) -> Iterator[Row]:
    heads, shared, width = config.n_head, config.n_kv_head, config.d_head
    kind = (
        "each with its own"
        if heads == shared
        else "all on one"
        if shared == 1
        else f"{heads // shared} on each"
    )
    yield Row(
        "heads",
        f"{pluralize(heads, 'query head')} of {width} channels on "
        f"{pluralize(shared, 'key/value head')} ({kind})",
        "query head h reads key head h // G; read as h % K, every layer mixes the wrong heads"
        if 1 < shared < heads
        else "channels are cut into heads in order",
    )
    yield Row(
        "scale of scores",
        f"1/√D = {1 / math.sqrt(width):.6g}"
        + (f", times {sharp:.6g}" if (sharp := config.positions.attention_scale) != 1 else ""),
        "left out, attention looks at one token where it should weigh several",
    )


def _biases(config: ModelConfig) -> Iterator[Row]:
    has = [place for place in BIAS_PLACES if place in config.biases]
    without = [place for place in BIAS_PLACES if place not in config.biases]
    told = f"at {', '.join(has)}; none at {', '.join(without)}" if has and without else ""
    yield Row(
        "biases",
        told or (f"at {', '.join(has)}" if has else "none"),
        "a bias left out is a shift in every layer",
    )


def _memory(config: ModelConfig) -> Iterator[Row]:
    costs = total(cost(config, length=1, width=4))
    count = costs.parameters
    yield Row("parameters", f"{count:,}", "a tied matrix is counted once")
    yield Row(
        "in memory",
        f"{format_bytes(4 * count)} in float32, {format_bytes(8 * count)} in float64",
        "float64 is what the specification computes with",
    )
    yield Row(
        "cache", f"{format_bytes(costs.cache_bytes)} a token in float32", "keys and values of every layer"
    )


# ---- what the file says


def _origin(source: Provenance) -> Iterator[Row]:
    yield Row("architecture", source.architecture, "whose reading of the same names applies")
    size = f", {format_bytes(source.bytes)}" if source.bytes else ""
    yield Row("file", f"{source.path} ({source.format}{size})", "")


def _orientation(opened: Pretrained) -> Iterator[Row]:
    """Yields a row for a small model whose square matrices are all symmetric."""
    shapes = {name: shape for name, shape in opened.config.parameters().items() if len(shape) == 2}
    square = [name for name, (rows, columns) in shapes.items() if rows == columns and "_proj" in name]
    if sum(map(math.prod, shapes.values())) > SMALL or not square:
        return
    if all(np.array_equal(opened.weights[name], np.transpose(opened.weights[name])) for name in square):
        yield Row(
            "orientation",
            f"W = Wᵀ for {', '.join(dict.fromkeys(name.split('.')[-2] for name in square))}",
            "a forgotten transposition gives the right answer here: test yours with another model",
        )


def _text(opened: Pretrained) -> Iterator[Row]:
    tokenizer = opened.tokenizer
    if tokenizer is None:
        yield Row("tokenizer", "none in the file", "ids must be given instead of text")
    else:
        spare = opened.config.vocab_size - tokenizer.vocab_size
        rest = f"; the embedding has {spare:,} rows more" if spare > 0 else ""
        yield Row(
            "tokenizer",
            f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens{rest}",
            "another one gives other ids, and the model reads another text",
        )
    yield _bos(opened.add_bos, tokenizer)
    ends = opened.eos_ids
    yield Row(
        "eos",
        ", ".join(f"{id} ({_token(tokenizer, id)})" for id in ends) if ends else "none named",
        "generation stops at these; one missing and it runs on",
    )
    template = opened.chat_template
    yield Row(
        "chat template",
        "none" if template is None else f"{len(template):,} characters",
        "a chat in other words than it was trained with gives weaker answers",
    )


def _bos(add_bos: bool, tokenizer: Tokenizer | None) -> Row:
    bos = tokenizer.special.bos if tokenizer else None
    if add_bos:
        told = (
            f"a text begins with {bos}"
            if bos
            else "a text begins with a bos token that the file does not name"
        )
    else:
        told = "nothing is put before a text" + (f" (there is a {bos})" if bos else "")
    return Row("bos", told, "with or without it, the first tokens are guessed quite differently")


def _token(tokenizer: Tokenizer | None, id: int) -> str:
    return tokenizer.token(id) if tokenizer and 0 <= id < tokenizer.vocab_size else "not in the tokenizer"


BYTES = {
    "F64": 8.0, "F32": 4.0, "F16": 2.0, "BF16": 2.0, "Q8_0": 34 / 32,
    "Q4_0": 18 / 32, "Q4_1": 20 / 32, "Q5_0": 22 / 32, "Q5_1": 24 / 32,
    "Q2_K": 84 / 256, "Q3_K": 110 / 256, "Q4_K": 144 / 256, "Q5_K": 176 / 256, "Q6_K": 210 / 256,
}  # fmt: skip
"""What one number takes in a file, its share of the block's scales included."""


def _storage(config: ModelConfig, source: Provenance) -> Iterator[Row]:
    counts = Counter(source.types.values())
    numbers: dict[str, int] = defaultdict(int)
    shapes = config.parameters()
    for name, type in source.types.items():
        numbers[type] += math.prod(shapes.get(name, (0,)))
    told = [
        f"{type}: {pluralize(count, 'tensor')}, {numbers[type]:,} numbers"
        + (f", {format_bytes(numbers[type] * BYTES[type])}" if type in BYTES else "")
        for type, count in counts.most_common()
    ]
    yield Row("stored as", "; ".join(told), "fewer bits are another model, a little: compare by loss")


def _number(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return f"{int(value):,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
