"""The quantization bill of a model: bytes, error per matrix, and what its predictions lose on a sample text.

    bill = measure_bill(subject, reference_weights, sample)
    bill.kl.value, bill.flips.value

Both models compute in float32 from the same numbers but the quantized ones, which are dequantized first: the
bill is that of the weights. How a kernel rounds that computes with the integers is for `verify`.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.base.dtypes import FLOAT_STORAGE, Array
from pellucid.base.formatting import format_duration, pluralize
from pellucid.base.lazy import attach
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.bootstrap import compute_p_value, draw_means, with_interval
from pellucid.evaluation.calibration.states import hold_states
from pellucid.evaluation.quantization.costs import (
    EVERY,
    OPERATIONS,
    CostMeter,
    QuantizationCosts,
    StoredSizes,
    measure_costs,
    number_units,
)
from pellucid.evaluation.quantization.divergence import (
    Divergence,
    GreedyText,
    compare_logits,
    find_departures,
)
from pellucid.evaluation.quantization.sample import BillSample, count_targets
from pellucid.evaluation.result import Estimate, compute_perplexity
from pellucid.formats.gguf.quants import BY_NAME
from pellucid.formats.pretrained import LazyWeights, Pretrained, parameter_count
from pellucid.report.report import Reported

ROWS = 1 << 20
"""Numbers of a matrix that are compared at once, in float64."""
SMALLEST_SCALE = 2.0**-24
"""The smallest positive float16: the unit of the error of a group whose scale was rounded to 0."""


@dataclass(frozen=True)
class MatrixError:
    """The bytes and the error of one matrix [out in]."""

    name: str
    shape: tuple[int, ...]
    type: str
    """`int8, per channel`, or the type of its file."""
    bytes: int
    """As stored."""
    relative_error: float
    largest_error: float | None
    """In units of the scale; None where the matrix has no scales."""

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.bytes / int(np.prod(self.shape))


def measure_matrix(
    name: str, weight: Array, quantized: QuantizedWeight | Array, type: str, size: int
) -> MatrixError:
    """Returns the error of a matrix, with its type and its `size` in bytes as stored."""
    out, width = weight.shape
    squares = error_squares = largest = 0.0
    has_scales = isinstance(quantized, QuantizedWeight)
    rows = max(ROWS // width, 1)
    for begin in range(0, out, rows):
        part = slice(begin, min(begin + rows, out))
        exact = np.asarray(weight[part], np.float64)
        if isinstance(quantized, QuantizedWeight):
            some = quantized.rows(part.start, part.stop)
            errors = np.abs(np.asarray(some, np.float32) - exact)
            units = np.maximum(np.abs(some.scales.astype(np.float64)), SMALLEST_SCALE)
            largest = max(largest, float((errors / np.repeat(units, some.group, 1)[:, :width]).max()))
        else:
            errors = np.abs(np.asarray(quantized[part], np.float64) - exact)
        squares += float((exact**2).sum())
        error_squares += float((errors**2).sum())
    relative = np.sqrt(error_squares / squares) if squares else float(error_squares > 0)
    return MatrixError(name, (out, width), type, size, float(relative), largest if has_scales else None)


WINDOW = 256
"""Tokens that a model reads at once, at most."""
LONG = 10.0
"""Seconds from which on the longest part of a bill is announced."""
PROMPTS, PROMPT_TOKENS = 5, 16
"""Greedy texts, and the tokens of the sample that each continues."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is computed, the tokens that are read, and their total."""


@dataclass(frozen=True)
class TextFigures:
    """What both models do on one text, or on all of them."""

    name: str
    n_targets: int
    reference_loss: Estimate
    """Nats per token."""
    loss: Estimate
    difference: Estimate
    """loss − reference_loss, paired."""
    p_value: float | None
    """Two-sided, of the hypothesis that the difference is 0; None where there is no interval."""
    kl: Estimate
    """KL(reference ‖ quantized), nats per token."""
    largest_kl: float
    flips: Estimate
    """The fraction of targets for which the most likely token is another one."""
    n_flips: int

    @property
    def perplexity(self) -> float | None:
        return compute_perplexity(self.loss.value)


@dataclass(frozen=True, repr=False)
class QuantizationBill(Reported):
    """What the quantized weights of a model cost."""

    model: str
    path: str
    """The name of its file or folder, without the folders around it: the bill goes along with the model."""
    reference: str
    """What it is compared with."""
    scheme: str
    """`int4, groups of 32`, or the types of the file's own blocks."""
    keep: tuple[str, ...]
    n_weights: int
    reference_bytes: int
    """4 for each weight."""
    file_bytes: int
    """Of the file that the model was read from."""
    bytes: int
    bits_per_weight: float
    matrices: tuple[MatrixError, ...]
    sample: str
    omitted: tuple[str, ...]
    """Texts of the built-in sample that the tokenizer cannot encode."""
    total: TextFigures
    texts: tuple[TextFigures, ...]
    """The figures of each text, where there are several."""
    greedy: tuple[GreedyText, ...]
    costs: QuantizationCosts
    samples: int
    """Of the bootstrap."""
    seed: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<QuantizationBill of {self.model}, {self.scheme}: {self.bits_per_weight:.2f} bits a weight, "
            f"KL {self.total.kl.value:.3g}, top-1 changes {self.total.flips.value:.1%}>"
        )


attach(QuantizationBill, {"pellucid.evaluation.quantization.report": ("report",)})


@dataclass(frozen=True)
class BillSubject:
    """What is billed: a model, its weights as they are quantized, and the float weights of its reference."""

    model: Pretrained
    weights: Mapping[str, QuantizedWeight | Array]
    types: Mapping[str, str]
    """The type of every matrix that is quantized: "int8, per channel", "Q4_1". One that is not a
    `QuantizedWeight` here has a type of GGUF."""
    reference: Mapping[str, Array]
    reference_name: str
    scheme: str
    keep: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def measure_bill(
    subject: BillSubject,
    sample: BillSample,
    *,
    device: Any = "cpu",
    samples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> QuantizationBill:
    """Returns the bill. `samples` and `seed` are those of the bootstrap; `say` is called, before a part
    that takes long, with what it will measure and about how long that takes."""
    model = subject.model
    config = model.config
    reference = Transformer.from_weights(config, _as_floats(config, subject.reference), device)
    quantized, matrices, sizes = _quantize(subject, device, progress)
    window = min(config.context_length, WINDOW)
    started = time.perf_counter()
    divergence = compare_models(reference, quantized, sample, window, progress)
    speed = sample.n_targets / (time.perf_counter() - started)
    total, texts = summarize(divergence, sample, samples, seed)
    greedy = find_departures(
        reference,
        quantized,
        choose_prompts(sample),
        lambda id: _show(model, id),
        model.eos_ids,
        lambda done, total: progress("greedy texts", done, total),
    )
    changed = [one.name for one in matrices if one.relative_error]
    meter = CostMeter(reference, quantized, sample, changed, window)
    if (seconds := estimate_seconds(meter, 2 * speed)) >= LONG:
        say(_announce(meter, seconds))
    costs = measure_costs(meter, sizes, samples=samples, seed=seed, progress=progress)
    return QuantizationBill(
        model=model.short_name,
        path=model.provenance.path.name,
        reference=subject.reference_name,
        scheme=subject.scheme,
        keep=subject.keep,
        n_weights=sizes.n_weights,
        reference_bytes=4 * sizes.n_weights,
        file_bytes=model.provenance.bytes,
        bytes=sizes.total(),
        bits_per_weight=sizes.bits_per_weight(),
        matrices=matrices,
        sample=sample.source,
        omitted=sample.omitted,
        total=total,
        texts=texts,
        greedy=greedy,
        costs=costs,
        samples=samples,
        seed=seed,
        notes=subject.notes,
    )


# ---- weights


def _as_floats(config: ModelConfig, weights: Mapping[str, Any]) -> LazyWeights:
    """Returns weights of which the quantized ones are dequantized when they are read."""
    return LazyWeights.from_function(config.parameters(), lambda name: np.asarray(weights[name]))


def _quantize(
    subject: BillSubject, device: Any, progress: Progress
) -> tuple[Transformer, tuple[MatrixError, ...], StoredSizes]:
    """Returns the quantized model in float32, and the error and the bytes of each matrix."""
    config, model = subject.model.config, subject.model
    shapes = config.parameters()
    n_weights, done, others = parameter_count(shapes), 0, 0
    matrices, kept = list[MatrixError](), dict[str, int]()
    floats = defaultdict(lambda: 4, {code: storage.itemsize for code, storage in FLOAT_STORAGE.items()})

    def read(name: str) -> Array:
        nonlocal done, others
        weight, count = subject.weights[name], math.prod(shapes[name])
        size, type = count * floats[model.provenance.types.get(name, "F32")], subject.types.get(name)
        if type is None:
            others += size
        else:
            kept[name] = size
            stored = weight.nbytes if isinstance(weight, QuantizedWeight) else BY_NAME[type].bytes(count)
            matrices.append(measure_matrix(name, subject.reference[name], weight, type, stored))
        done += count
        progress("quantizing", done, n_weights)
        return np.asarray(weight)

    module = Transformer.from_weights(config, LazyWeights.from_function(shapes, read), device)
    sizes = StoredSizes({one.name: one.bytes for one in matrices}, kept, others, n_weights)
    return module, tuple(matrices), sizes


# ---- predictions


def compare_models(
    reference: Transformer,
    quantized: Transformer,
    sample: BillSample,
    window: int,
    progress: Progress = lambda what, done, total: None,
) -> Divergence:
    """Returns the divergence at every target of the sample, in order."""
    done, total = 0, 2 * sample.n_targets

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        progress("predictions", done, total)

    settings: dict[str, Any] = {"window": window, "stride": window, "most": sample.n_targets}
    ours, theirs = (
        hold_states(module, sample.documents, progress=count, **settings) for module in (reference, quantized)
    )
    chunks = zip(ours.chunks(), theirs.chunks(), strict=True)
    return Divergence.join(
        [compare_logits(logits, others, targets) for (_, logits, targets), (_, others, _) in chunks]
    )


def summarize(
    divergence: Divergence, sample: BillSample, samples: int, seed: int
) -> tuple[TextFigures, tuple[TextFigures, ...]]:
    """Returns the figures of all texts together, and of each one where there are several."""
    units, counts = number_units(sample), list(map(count_targets, sample.documents))
    total = compute_figures(sample.source, divergence, units, samples, seed)
    if len(counts) == 1:
        return total, ()
    borders = np.cumsum([0, *counts])
    parts = zip(sample.documents, map(slice, borders, borders[1:]), strict=False)
    texts = [
        compute_figures(document.name, divergence.select(rows), units[rows], samples, seed)
        for document, rows in parts
    ]
    return total, tuple(texts)


def compute_figures(
    name: str, divergence: Divergence, units: NDArray[np.int64], samples: int, seed: int
) -> TextFigures:
    """Returns the figures of some targets, with intervals by bootstrap over `units` [N]; the difference is
    that of the same samples."""
    flips = divergence.is_flip
    values = np.stack([divergence.reference_nll, divergence.nll, divergence.kl, flips])
    (reference, loss, kl, flip_share), drawn = draw_means(values, units, samples, seed)
    change = None if drawn is None else drawn[:, 1] - drawn[:, 0]
    return TextFigures(
        name=name,
        n_targets=len(divergence),
        reference_loss=reference,
        loss=loss,
        difference=with_interval(loss.value - reference.value, change),
        p_value=None if change is None else compute_p_value(change),
        kl=kl,
        largest_kl=float(divergence.kl.max()),
        flips=flip_share,
        n_flips=int(flips.sum()),
    )


# ---- greedy texts


def choose_prompts(sample: BillSample) -> list[tuple[str, list[int]]]:
    """Returns tokens of the sample for greedy texts to continue: the beginnings of documents where there are
    enough, else of spans; evenly spaced ones, each with its document's name."""
    spans = sample.spans()
    begins = [span for span in spans if span.first == 0]
    among, found = begins if len(begins) >= PROMPTS else spans, list[tuple[str, list[int]]]()
    for i in sorted({i * len(among) // PROMPTS for i in range(PROMPTS)}):
        span, ids = among[i], among[i].document.ids
        start = int(np.flatnonzero(span.document.is_counted)[span.first]) if span.first else 0
        found.append((span.document.name, ids[start : start + PROMPT_TOKENS].tolist()))
    return found


def _show(model: Pretrained, id: int) -> str:
    tokenizer = model.need_tokenizer()
    return tokenizer.visible(id) if id < tokenizer.vocab_size else f"#{id}"


def estimate_seconds(meter: CostMeter, speed: float) -> float:
    """Returns about how long the costs take, where the whole model reads `speed` tokens a second."""
    groups, tokens = meter.count_operations(meter.groups), meter.sample.n_targets
    every = groups + meter.count_operations(meter.matrices)
    planned = min(tokens * every, max(OPERATIONS, tokens * groups))
    return planned / meter.count_operations([EVERY]) / speed


def _announce(meter: CostMeter, seconds: float) -> str:
    levels = Counter(group.level for group in meter.groups)
    return (
        f"What matrices cost is measured for {pluralize(levels['kind'], 'kind')} of them, "
        f"{pluralize(levels['layer'], 'layer')} and the costliest of {len(meter.matrices):,} single ones, on "
        f"{pluralize(meter.sample.n_targets, 'token')}: about {format_duration(seconds)}."
    )
