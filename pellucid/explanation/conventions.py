"""The convention card: everything about a model that does not follow from the shapes of its weights.

A file that is read under a wrong convention loads without an error and generates almost the same text; so
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
from pellucid.base.dtypes import FLOAT_STORAGE
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.config import BIAS_PLACES, ModelConfig
from pellucid.config.cost import cost, total
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.parts import Part
from pellucid.reference.ops import find_op
from pellucid.text.tokenizer import Tokenizer

SMALL = 10_000
"""Parameters of a model that is read whole for its card."""


@dataclass(frozen=True)
class CardRow:
    label: str
    value: str
    why: str
    formula: str = ""


@dataclass(frozen=True)
class Card:
    name: str
    rows: tuple[CardRow, ...]

    def __getitem__(self, label: str) -> CardRow:
        return next(row for row in self.rows if row.label == label)


def card(name: str, config: ModelConfig, opened: Pretrained | None = None) -> Card:
    """Returns the card of a config, or of a model with its tokenizer and its file."""
    rows = [*_sizes(config), *_choices(config), *_attention(config), *_biases(config)]
    if opened:
        rows = [*_origin(opened.provenance), *rows, *_orientation(opened), *_text(opened)]
    rows += _memory(config)
    if opened and opened.provenance.types:
        rows += _storage(config, opened.provenance)
    return Card(name, tuple(rows))


def lines(card: Card, width: int = 110) -> Iterator[str]:
    """Yields the card in three columns: label, value, and why it matters."""
    first = max(len(row.label) for row in card.rows) + 2
    second = (width - first) * 5 // 9
    yield card.name
    for row in card.rows:
        value = [*_wrap(row.value, second - 2), *_wrap(row.formula, second - 2)]
        why = _wrap(row.why, max(width - first - second, 24))
        for i in range(max(len(value), len(why))):
            left = row.label if i == 0 else ""
            middle, right = (texts[i] if i < len(texts) else "" for texts in (value, why))
            yield f"{left:<{first}}{middle:<{second}}{right}".rstrip()


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 24))


# ---- what the config says


def _sizes(config: ModelConfig) -> Iterator[CardRow]:
    yield CardRow("layers", _number(config.n_layer), "blocks of attention and feed-forward")
    yield CardRow("width", f"{config.d_model:,} channels", "C, the residual stream")
    if not config.mlp.is_none:
        yield CardRow(
            "feed-forward", f"{config.d_ff:,} hidden channels", "F; with a gate, three matrices of it"
        )
    yield CardRow("vocabulary", f"{config.vocab_size:,} tokens", "V, the rows of the embedding")
    yield CardRow("context", f"{config.context_length:,} tokens", "positions beyond it were never trained")


WHY = {
    "positions": "a wrong position encoding changes no shape, and text is still generated",
    "positions.rope": "pairs: channels 2i, 2i + 1; halves: i, i + D/2. No shape shows the layout or base",
    "mask": "without it a position attends to the token that it predicts",
    "attention": "how scores become probabilities; another kind loads the same weights without an error",
    "score_cap": "omitted, large scores dominate the pattern",
    "placement": "norms in another place have the same shapes, and change every layer",
    "embed_norm": "omitted, the residual stream has another scale",
    "qk_norm": "omitted, scores have another scale in every layer",
    "logit_cap": "omitted, the most probable token is too probable",
    "norm": "another kind or eps changes every layer a little, without an error",
    "mlp": "the activation is not in the weights, and gate and up have one shape: a swap loads",
    "residual": "the output of a sub-layer is added to its input",
    "output": "how the heads are combined; some files store it transposed",
    "unembedding": "a file without this matrix has tied weights; it must not be initialized at random",
}
"""Why a choice matters, by its field in the config, or by field and kind; a new choice needs none."""
ALWAYS = ("positions", "mask", "norm", "mlp", "residual", "output")
"""Choices that are shown even where they are none."""


def _choices(config: ModelConfig) -> Iterator[CardRow]:
    for key, part in config.parts().items():
        if not part.is_none or key in ALWAYS:
            why = WHY.get(f"{key}.{part.kind}", WHY.get(key, "") if not part.is_none else "")
            yield CardRow(key, _describe(part), why, _idea(part))
    without = [key for key, part in config.parts().items() if part.is_none and key not in ALWAYS]
    if without:
        yield CardRow("without", ", ".join(without), "each would change the result of the same weights")
    if not config.mlp.is_none:
        op = find_op(config.mlp.activation)
        formula = op.formula if isinstance(op.formula, str) else op.doc
        shown = formula.replace("{y}", "A(x)").replace("{0}", "x")
        yield CardRow(
            "activation",
            f"{op.name}: {shown}",
            "similar activations share a name; a wrong one looks like a worse model",
        )


def _describe(part: Part) -> str:
    """Returns a part's kind and settings: rope, base 10,000, layout halves."""
    settings = dataclasses.asdict(part).items()
    return ", ".join([part.kind, *(f"{key} {_number(value)}" for key, value in settings)])


def _idea(part: Part) -> str:
    """Returns the first line of a kind's docstring: its file's, or its class's where the family is a
    module."""
    kind = type(part)
    home = sys.modules[kind.__module__]
    doc = kind.__doc__ if home is parts.home(part.family) else home.__doc__
    return (doc or "").strip().partition("\n")[0]


def _attention(config: ModelConfig) -> Iterator[CardRow]:
    heads, shared, width = config.n_head, config.n_kv_head, config.d_head
    kind = (
        "each with its own"
        if heads == shared
        else "all on one"
        if shared == 1
        else f"{heads // shared} on each"
    )
    yield CardRow(
        "heads",
        f"{pluralize(heads, 'query head')} of {width} channels on "
        f"{pluralize(shared, 'key/value head')} ({kind})",
        "query head h uses key/value head h // G; with h % K every layer combines the wrong heads"
        if 1 < shared < heads
        else "channels are split into heads in order",
    )
    yield CardRow(
        "scale of scores",
        f"1/√D = {1 / math.sqrt(width):.6g}"
        + (f", times {scale:.6g}" if (scale := config.positions.attention_scale) != 1 else ""),
        "omitted, the pattern is too sharp: attention concentrates on one token",
    )


def _biases(config: ModelConfig) -> Iterator[CardRow]:
    has = [place for place in BIAS_PLACES if place in config.biases]
    without = [place for place in BIAS_PLACES if place not in config.biases]
    shown = f"at {', '.join(has)}; none at {', '.join(without)}" if has and without else ""
    yield CardRow(
        "biases",
        shown or (f"at {', '.join(has)}" if has else "none"),
        "an omitted bias shifts every layer",
    )


def _memory(config: ModelConfig) -> Iterator[CardRow]:
    costs = total(cost(config, length=1, width=4))
    count = costs.parameters
    yield CardRow("parameters", f"{count:,}", "a tied matrix is counted once")
    yield CardRow(
        "in memory",
        f"{format_bytes(4 * count)} in float32, {format_bytes(8 * count)} in float64",
        "the specification computes in float64",
    )
    yield CardRow(
        "cache", f"{format_bytes(costs.cache_bytes)} per token in float32", "keys and values of every layer"
    )


# ---- what the file says


def _origin(source: Provenance) -> Iterator[CardRow]:
    yield CardRow("architecture", source.architecture, "the conventions of this architecture apply")
    size = f", {format_bytes(source.bytes)}" if source.bytes else ""
    yield CardRow("file", f"{source.path} ({source.format}{size})", "")


def _orientation(opened: Pretrained) -> Iterator[CardRow]:
    """Yields a row for a small model whose square matrices are all symmetric."""
    shapes = {name: shape for name, shape in opened.config.parameters().items() if len(shape) == 2}
    square = [name for name, (rows, columns) in shapes.items() if rows == columns and "_proj" in name]
    if sum(map(math.prod, shapes.values())) > SMALL or not square:
        return
    if all(np.array_equal(opened.weights[name], np.transpose(opened.weights[name])) for name in square):
        yield CardRow(
            "orientation",
            f"W = Wᵀ for {', '.join(dict.fromkeys(name.split('.')[-2] for name in square))}",
            "a forgotten transposition gives the right answer here: test yours with another model",
        )


def _text(opened: Pretrained) -> Iterator[CardRow]:
    tokenizer = opened.tokenizer
    if tokenizer is None:
        yield CardRow("tokenizer", "none in the file", "ids must be given instead of text")
    else:
        spare = opened.config.vocab_size - tokenizer.vocab_size
        rest = f"; the embedding has {spare:,} rows more" if spare > 0 else ""
        yield CardRow(
            "tokenizer",
            f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens{rest}",
            "another tokenizer gives other ids for the same text",
        )
    yield _bos(opened.add_bos, tokenizer)
    ends = opened.eos_ids
    yield CardRow(
        "eos",
        ", ".join(f"{id} ({_token(tokenizer, id)})" for id in ends) if ends else "none named",
        "generation stops at these tokens; without one it continues",
    )
    template = opened.chat_template
    yield CardRow(
        "chat template",
        "none" if template is None else f"{len(template):,} characters",
        "a chat in another format than in training gives weaker answers",
    )


def _bos(add_bos: bool, tokenizer: Tokenizer | None) -> CardRow:
    bos = tokenizer.special.bos if tokenizer else None
    if add_bos:
        shown = (
            f"a text begins with {bos}"
            if bos
            else "a text begins with a bos token that the file does not name"
        )
    else:
        shown = "a text does not begin with bos" + (f" ({bos} exists)" if bos else "")
    return CardRow("bos", shown, "it changes the predictions of the first tokens")


def _token(tokenizer: Tokenizer | None, id: int) -> str:
    return tokenizer.token(id) if tokenizer and 0 <= id < tokenizer.vocab_size else "not in the tokenizer"


BYTES = {
    "F64": 8.0, "F32": 4.0, "F16": 2.0, "BF16": 2.0, "Q8_0": 34 / 32,
    "Q4_0": 18 / 32, "Q4_1": 20 / 32, "Q5_0": 22 / 32, "Q5_1": 24 / 32,
    "Q2_K": 84 / 256, "Q3_K": 110 / 256, "Q4_K": 144 / 256, "Q5_K": 176 / 256, "Q6_K": 210 / 256,
}  # fmt: skip
"""The bytes of one number in a file, with its share of the block's scales."""


def _storage(config: ModelConfig, source: Provenance) -> Iterator[CardRow]:
    counts = Counter(source.types.values())
    numbers: dict[str, int] = defaultdict(int)
    shapes = config.parameters()
    for name, type in source.types.items():
        numbers[type] += math.prod(shapes.get(name, (0,)))
    shown = [
        f"{type}: {pluralize(count, 'tensor')}, {numbers[type]:,} numbers"
        + (f", {format_bytes(numbers[type] * BYTES[type])}" if type in BYTES else "")
        for type, count in counts.most_common()
    ]
    if any(type not in FLOAT_STORAGE for type in numbers):
        known = sum(count * BYTES[type] for type, count in numbers.items() if type in BYTES)
        size = known if all(type in BYTES for type in numbers) else source.bytes
        shown.append(f"{8 * size / sum(numbers.values()):.3g} bits per weight")
    yield CardRow(
        "stored as", "; ".join(shown), "quantized weights differ a little from the original: compare by loss"
    )


def _number(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return f"{int(value):,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
