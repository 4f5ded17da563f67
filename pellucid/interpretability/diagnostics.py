"""Collapse diagnostics: whether positions, directions, units or heads of a model no longer differ.

Of the residual stream X [T C] before the first block and after each one:

    norm              ‖x_t‖ by position, its mean, median and maximum: how fast the stream grows
    massive           max |x| / median |x|: a few channels that dwarf all others
    cosine            mean cos(x_t, x_s) over t ≠ s: 1 where all positions have one direction (over-smoothing)
    stable rank       ‖X‖²_F / σ₁²          1 where X has rank 1, at most min(T, C)
    effective rank    exp(−Σ q_i ln q_i), q_i = σ_i / Σ σ (Roy and Vetterli 2007)

Of each MLP: dead units u, whose largest activation m_u = max_t |a_tu| is at most `threshold` times the median
of all m_u; for ReLU the threshold is 0. Of each norm: rstd = 1 / √(mean square + eps). Of each weight matrix:
σ₁ and both ranks. Of each layer's attention: the entropy of the patterns (`attention.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pellucid.base.arguments import check_float
from pellucid.base.dtypes import Array
from pellucid.config import ModelConfig
from pellucid.interpretability.attention import compute_attention_statistics, has_pattern
from pellucid.interpretability.geometry import measure_spread
from pellucid.interpretability.lens import label_state, list_states
from pellucid.interpretability.runner import PromptedModel
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.items import View, ViewTable

FORMULA = """norm: ‖x_t‖;  massive: max |x| / median |x|;  cosine: mean_{t≠s} cos(x_t, x_s)
stable rank: ‖X‖²_F / σ₁²;  effective rank: exp(−Σ q ln q), q = σ / Σ σ
dead unit u: m_u ≤ threshold · median m, m_u = max_t |a_tu|;  entropy: −Σ_s P ln P"""
RELUS = ("relu", "relu_squared")
"""Activations that are exactly 0 for all negative inputs."""
THRESHOLD = 0.01
"""The threshold of other activations."""
LARGEST = 5
"""Singular values that are listed."""


def compute_singular_values(matrix: Array) -> Array:
    """Returns the singular values of a matrix [M N], the largest first: roots of the eigenvalues of the
    smaller of X Xᵀ and Xᵀ X. What rounding hides, below σ₁ √(n eps), is 0."""
    gram = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    squares = np.linalg.eigvalsh(gram)[::-1]
    hidden = len(squares) * np.finfo(np.float64).eps * squares.max(initial=0.0)
    return np.asarray(np.sqrt(np.where(squares > hidden, squares, 0.0)))


@dataclass(frozen=True)
class Spectrum:
    """The largest singular values of a matrix and its two ranks; 0 for a matrix of zeros."""

    largest: tuple[float, ...]
    stable_rank: float
    effective_rank: float


def measure_spectrum(matrix: Array) -> Spectrum:
    values = compute_singular_values(matrix)
    if not values.any():
        return Spectrum(tuple(values[:LARGEST].tolist()), 0.0, 0.0)
    shares = values[values > 0] / values.sum()
    effective = float(np.exp(-(shares * np.log(shares)).sum()))
    stable = float((values**2).sum() / values[0] ** 2)
    return Spectrum(tuple(values[:LARGEST].tolist()), stable, effective)


@dataclass(frozen=True)
class StreamHealth:
    """One state of the residual stream of a prompt; `cosine` is None for one position."""

    state: str
    norms: tuple[float, ...]
    """By position."""
    massive: float | None
    """max |x| / median |x|; None where the median is 0."""
    cosine: float | None
    spectrum: Spectrum

    @property
    def norm(self) -> float:
        return float(np.mean(self.norms))


def diagnose_stream(state: str, x: Array) -> StreamHealth:
    """Returns the diagnostics of a state [T C]."""
    sizes = np.abs(x)
    median = float(np.median(sizes))
    return StreamHealth(
        state,
        tuple(np.linalg.norm(x, axis=1).tolist()),
        float(sizes.max()) / median if median else None,
        measure_spread(x).mean if len(x) > 1 else None,
        measure_spectrum(x),
    )


@dataclass(frozen=True)
class UnitHealth:
    """The hidden units of one layer's MLP: the dead ones, and the share of all activations that are as small
    as those of a dead unit."""

    layer: int
    n_units: int
    dead: tuple[int, ...]
    quiet_share: float
    median_largest: float
    """The median over units of the largest activation, which says what is small."""


def diagnose_units(layer: int, activations: Array, threshold: float) -> UnitHealth:
    """Returns the dead units of activations [T F]; the median makes one massive unit change nothing."""
    sizes = np.abs(activations)
    median = float(np.median(sizes.max(0)))
    is_quiet = sizes <= threshold * median
    dead = np.flatnonzero(is_quiet.all(0))
    return UnitHealth(layer, sizes.shape[1], tuple(dead.tolist()), float(is_quiet.mean()), median)


def name_units(config: ModelConfig) -> str | None:
    """Returns the name of the input of the down-projection under `blocks.L.`; None without an MLP."""
    if config.mlp.is_none:
        return None
    return "mlp.hidden" if config.mlp.form == "gated" else "mlp.act"


@dataclass(frozen=True)
class Diagnostics:
    """Everything that is found on one prompt; entropies [L] are means over heads and positions from 1 on,
    None where there is no pattern or one token."""

    streams: list[StreamHealth]
    units: list[UnitHealth]
    threshold: float
    rstd: dict[str, tuple[float, float]]
    """The least and the largest rstd of each norm."""
    weights: dict[str, Spectrum]
    entropy: list[float] | None
    entropy_fraction: list[float] | None


def diagnose(
    prompted: PromptedModel,
    *,
    threshold: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Diagnostics:
    """Returns the diagnostics of a model on a prompt; the threshold of dead units is 0 for ReLU by default,
    and `THRESHOLD` for other activations."""
    runner, config = prompted.runner, prompted.runner.config
    if threshold is None:
        threshold = 0.0 if not config.mlp.is_none and config.mlp.activation in RELUS else THRESHOLD
    check_float("threshold", threshold, least=0.0)
    states = [name for name in list_states(config) if not name.endswith("resid_mid")]
    unit, norms = name_units(config), _list_norms(config)
    matrices = [name for name, shape in config.parameters().items() if _is_matrix(name, shape)]
    total = 1 + len(states) + len(matrices)
    layers = range(config.n_layer)
    seen = runner.run(
        prompted.ids, [*states, *([f"blocks.{i}.{unit}" for i in layers] if unit else []), *norms]
    )
    progress(1, total)
    streams = []
    for done, state in enumerate(states, 2):
        streams.append(diagnose_stream(state, seen[state][0]))
        progress(done, total)
    weights = {}
    for done, name in enumerate(matrices, 2 + len(states)):
        weights[name] = measure_spectrum(runner.weights[name])
        progress(done, total)
    entropy, fraction = _measure_entropy(prompted)
    return Diagnostics(
        streams,
        [diagnose_units(i, seen[f"blocks.{i}.{unit}"][0], threshold) for i in layers] if unit else [],
        threshold,
        {name: (float(seen[name].min()), float(seen[name].max())) for name in norms},
        weights,
        entropy,
        fraction,
    )


def _is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Returns whether a parameter is a matrix of a block; the tables of tokens and positions are not among
    them."""
    return name.startswith("blocks.") and len(shape) == 2


def _list_norms(config: ModelConfig) -> list[str]:
    """Returns the names of the rstd of the stream's norms, in order."""
    if "rstd" not in config.norm.values:
        return []
    parts = ["attn"] + ["mlp"] * (not config.mlp.is_none)
    places = [f"{part}_{place}" for part in parts for place in config.placement.places]
    names = [f"blocks.{layer}.{place}.rstd" for layer in range(config.n_layer) for place in places]
    return names + ["final_norm.rstd"] * config.placement.final


def _measure_entropy(prompted: PromptedModel) -> tuple[list[float] | None, list[float] | None]:
    """Returns the mean entropy of each layer's patterns, and its share of the largest possible."""
    config = prompted.runner.config
    if len(prompted.ids) < 2 or not has_pattern(config):
        return None, None
    means = compute_attention_statistics(prompted.runner, [prompted.ids]).means
    entropy, fraction = means["entropy"].mean(1).tolist(), means["entropy fraction"].mean(1)
    return entropy, fraction.tolist() if np.isfinite(fraction).all() else None


def view_diagnostics(
    prompted: PromptedModel,
    *,
    threshold: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> View:
    """Returns whether anything has collapsed on this prompt, by layer."""
    found = diagnose(prompted, threshold=threshold, progress=progress)
    n_units, n_dead = (
        sum(counts) for counts in ([u.n_units for u in found.units], [len(u.dead) for u in found.units])
    )
    notes = [f"{n_dead:,} of {n_units:,} hidden units are dead on these {len(prompted.ids):,} tokens."]
    data = {
        "n_tokens": len(prompted.ids),
        "threshold": found.threshold,
        "streams": [asdict(stream) | {"norm": stream.norm} for stream in found.streams],
        "units": [asdict(units) for units in found.units],
        "rstd": {name: {"least": low, "largest": high} for name, (low, high) in found.rstd.items()},
        "weights": {name: asdict(spectrum) for name, spectrum in found.weights.items()},
        "entropy": found.entropy,
        "entropy_fraction": found.entropy_fraction,
    }
    tables = [
        *_make_stream_tables(found, prompted.labels),
        _make_layer_table(found),
        *_make_weight_tables(found),
    ]
    title = f"{prompted.name}: collapse diagnostics on {len(prompted.ids):,} tokens"
    return View("diagnostics", title, FORMULA, tables, _draw(found), notes if n_units else (), data)


def _make_stream_tables(found: Diagnostics, labels: Sequence[str]) -> list[ViewTable]:
    names = [label_state(stream.state) for stream in found.streams]
    norms = [
        (
            name,
            stream.norm,
            float(np.median(stream.norms)),
            max(stream.norms),
            labels[int(np.argmax(stream.norms))],
            stream.massive,
        )
        for name, stream in zip(names, found.streams, strict=True)
    ]
    directions = [
        (name, stream.cosine, spectrum.largest[0], spectrum.stable_rank, spectrum.effective_rank)
        for name, stream in zip(names, found.streams, strict=True)
        for spectrum in [stream.spectrum]
    ]
    return [
        ViewTable(
            "norms of the residual stream over the positions, and its largest channel beside the median one",
            ("state", "mean", "median", "largest", "at", "massive"),
            norms,
            2,
        ),
        ViewTable(
            "directions of the residual stream",
            ("state", "cosine", "σ₁", "stable rank", "effective rank"),
            directions,
            3,
        ),
    ]


def _make_layer_table(found: Diagnostics) -> ViewTable:
    """Returns a row for each layer: dead units, the range of rstd, and the entropy of its patterns."""
    layers = range(len(found.streams) - 1)
    rstd: dict[int, list[tuple[float, float]]] = {layer: [] for layer in layers}
    for name, ends in found.rstd.items():
        if name.startswith("blocks."):
            rstd[int(name.split(".")[1])].append(ends)
    rows = [
        (
            layer,
            len(found.units[layer].dead) if found.units else None,
            found.units[layer].quiet_share if found.units else None,
            min(low for low, _ in rstd[layer]) if rstd[layer] else None,
            max(high for _, high in rstd[layer]) if rstd[layer] else None,
            found.entropy[layer] if found.entropy else None,
            found.entropy_fraction[layer] if found.entropy_fraction else None,
        )
        for layer in layers
    ]
    columns = ("layer", "dead units", "quiet", "least rstd", "largest rstd", "entropy", "of uniform")
    caption = (
        "MLPs: dead units and the share of quiet activations; norms; patterns: entropy in nats, and as a "
        "share of a uniform pattern's"
    )
    return ViewTable(caption, columns, rows)


def _make_weight_tables(found: Diagnostics) -> list[ViewTable]:
    """Returns for each kind of matrix the layers with the least and the largest σ₁, and the least ranks."""
    rows = []
    for kind, spectra in _group_by_kind(found.weights).items():
        tops = [spectrum.largest[0] for spectrum in spectra]
        rows.append(
            (
                kind,
                min(tops),
                max(tops),
                int(np.argmax(tops)),
                min(spectrum.stable_rank for spectrum in spectra),
                min(spectrum.effective_rank for spectrum in spectra),
            )
        )
    columns = ("matrix", "least σ₁", "largest σ₁", "in layer", "stable rank ≥", "effective rank ≥")
    return [ViewTable("weight matrices over the layers", columns, rows, 3)] if rows else []


def _group_by_kind(weights: Mapping[str, Spectrum]) -> dict[str, list[Spectrum]]:
    """Returns the spectra of each matrix of a block, by layer."""
    groups: dict[str, list[Spectrum]] = {}
    for name, spectrum in weights.items():
        groups.setdefault(name.split(".", 2)[2].removesuffix(".weight"), []).append(spectrum)
    return groups


def _draw(found: Diagnostics) -> list[Chart]:
    """Returns the curves over the blocks: norms, cosines and ranks of the stream, entropies, and σ₁."""
    streams = found.streams
    norms = {
        "largest norm": [max(stream.norms) for stream in streams],
        "mean norm": [stream.norm for stream in streams],
        "median norm": [float(np.median(stream.norms)) for stream in streams],
    }
    ranks = {
        "stable rank": [stream.spectrum.stable_rank for stream in streams],
        "effective rank": [stream.spectrum.effective_rank for stream in streams],
    }
    charts = [
        _draw_curves("norm of the residual stream", norms, dash=2),
        _draw_curves("rank of the residual stream", ranks, dash=1),
    ]
    cosines = [stream.cosine for stream in streams if stream.cosine is not None]
    if cosines:
        charts.append(_draw_curves("cosine between positions", {"": cosines}))
    if found.entropy:
        charts.append(_draw_curves("entropy of the patterns, nats", {"": found.entropy}))
    groups = _group_by_kind(found.weights)
    if groups:
        tops = {kind: [spectrum.largest[0] for spectrum in spectra] for kind, spectra in groups.items()}
        charts.append(_draw_curves("largest singular value", tops))
    return charts


def _draw_curves(title: str, curves: Mapping[str, Sequence[float]], dash: int = 0) -> Chart:
    """Returns curves over the blocks, with 0 in view; logarithmic where the values span two decades."""
    values = np.concatenate([np.array(curve) for curve in curves.values()])
    least, most = float(values.min()), float(values.max())
    count = max(len(curve) for curve in curves.values())
    is_log = least > 0 and most > 100 * least
    y = Axis("", least, most, is_log=True) if is_log else Axis("", min(0.0, least), 1.05 * most or 1.0)
    series = [
        Series(LegendKey(name, i, dash), np.arange(len(curve), dtype=np.float64), np.array(curve))
        for i, (name, curve) in enumerate(curves.items())
    ]
    return Chart(title, Axis("block", 0, max(count - 1, 1), is_whole=True), y, series)
