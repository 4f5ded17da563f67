"""The content of a figure: series over axes, and heatmaps; the modules beside this one draw it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Stops = tuple[tuple[int, int, int], ...]
SCALES: dict[str, Stops] = {
    "mask": ((234, 231, 223), (43, 108, 176)),
    "signed": ((166, 82, 42), (252, 251, 248), (43, 108, 176)),
    "log": ((243, 241, 235), (132, 171, 211), (10, 60, 120)),
    "share": ((252, 251, 248), (43, 108, 176)),
}
"""The colors of a heatmap from its least value to its largest: of numbers with a sign, brown is negative."""
DARK_SCALES: dict[str, Stops] = {
    "mask": ((41, 44, 49), (99, 179, 237)),
    "signed": ((217, 138, 95), (21, 23, 26), (99, 179, 237)),
    "log": ((31, 34, 38), (52, 104, 158), (176, 214, 250)),
    "share": ((21, 23, 26), (99, 179, 237)),
}
"""The same on a dark page."""


@dataclass(frozen=True)
class Axis:
    """A range of numbers under a label; logarithmic where `is_log`, with whole ticks where `is_whole`."""

    label: str
    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def place(self, values: Array | float) -> Array:
        """Returns the position of each value between the ends, 0 at `low` and 1 at `high`.

        >>> Axis("x", 1, 100, is_log=True).place(10.0).item()
        0.5
        """
        low, high, at = self.low, self.high, np.asarray(values, np.float64)
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), np.log10(at)
        return (at - low) / ((high - low) or 1.0)

    def ticks(self, most: int = 6) -> Iterator[tuple[str, float]]:
        """Yields about `most` round numbers at most, each with its position from 0 to 1.

        >>> list(Axis("step", 0, 2000).ticks())
        [('0', 0.0), ('500', 0.25), ('1,000', 0.5), ('1,500', 0.75), ('2,000', 1.0)]
        """
        if self.is_log:
            start, end = math.log10(self.low), math.log10(self.high)
            steps = (1, 2, 5) if end - start < 2.5 else (1,)
            every = max(1, round((end - start) / 6))
            decades = range(math.floor(start), math.ceil(end) + 1)
            values = [step * 10.0**decade for decade in decades if decade % every == 0 for step in steps]
        else:
            rough = (self.high - self.low) / most
            size = 10.0 ** math.floor(math.log10(rough))
            step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
            step = max(step, 1.0) if self.is_whole else step
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            values = [step * i for i in range(first, last + 1)]
        for value, place in zip(values, self.place(np.array(values)).tolist(), strict=True):
            if -1e-9 <= place <= 1 + 1e-9:
                yield format_tick(value), place


def format_tick(value: float) -> str:
    """Returns 1,000 rather than 1e+03, and 3e−4 rather than 0.0003.

    >>> [format_tick(value) for value in (0.0003, -12.5, 2e9)]
    ['3e−4', '−12.5', '2e9']
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value:,.10g}".replace("-", "−")
    mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")


@dataclass(frozen=True)
class LegendKey:
    """A name in the legend, with the number of its color and of its dash pattern."""

    name: str
    color: int = 0
    dash: int = 0


@dataclass(frozen=True)
class Series:
    """y over rising x; NaN is a gap. Faint series lie behind the others; a level is one y, with its name."""

    key: LegendKey
    x: Array
    y: Array
    style: Literal["line", "faint", "points", "level"] = "line"
    label: str = ""


@dataclass(frozen=True)
class PointLabel:
    """A labelled point: a disk, or a ring where it is open."""

    x: float
    y: float
    label: str = ""
    is_open: bool = False


@dataclass(frozen=True)
class Chart:
    """Series over the same axes, and labelled points; what is outside of the axes is not drawn.

    >>> key, updates = LegendKey("loss"), np.arange(3.0)
    >>> curve = Series(key, updates, np.array([1.86, 1.06, 0.96]), "points")
    >>> marks = [PointLabel(0, 1.86, "0 of 3 right"), PointLabel(1, 1.06, "1 of 3")]
    >>> x = Axis("update", 0, 2, is_whole=True)
    >>> chart = Chart("loss over updates", x, Axis("nats", 0, 2), [curve], marks)
    >>> [words for words, place in chart.x.ticks()]
    ['0', '1', '2']
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[PointLabel] = ()


@dataclass(frozen=True)
class Heatmap:
    """values [row column], the first row on top; grey where a value is not finite, or not above 0 on a log
    scale. `scale`: a mask of 0 and 1, signed from −1 to 1, or log from the least positive value.

    Where the rows are named, a column is one of `columns` on the axis `x`.
    """

    title: str
    x: Axis
    y_label: str
    values: Array
    scale: Literal["mask", "signed", "log"]
    subtitle: str = ""
    rows: Sequence[str] = ()
    columns: Array | None = None

    def limits(self) -> tuple[float, float]:
        """Returns the values at the ends of the color scale."""
        if self.scale != "log":
            return (0.0, 1.0) if self.scale == "mask" else (-1.0, 1.0)
        found = self.values[np.isfinite(self.values) & (self.values > 0)]
        return (float(found.min()), float(found.max())) if found.size else (1.0, 1.0)

    def place(self, values: Array) -> Array:
        """Returns the position of each value on the color scale, from 0 to 1; NaN where it has no color."""
        low, high = self.limits()
        with np.errstate(all="ignore"):
            shown = np.where(np.isfinite(values) & ((values > 0) | (self.scale != "log")), values, np.nan)
            if high == low:
                return np.where(np.isnan(shown), np.nan, 0.5)
            return np.clip(Axis("", low, high, self.scale == "log").place(shown), 0, 1)

    def edges(self) -> Array:
        """Returns the ends of the columns: halfway between two of them, and within the axis."""
        if self.columns is None:
            return np.arange(self.values.shape[1] + 1, dtype=np.float64)
        middles = (self.columns[1:] + self.columns[:-1]) / 2
        if not len(middles):
            return np.array([self.x.low, self.x.high])
        ends = 2 * self.columns[0] - middles[0], 2 * self.columns[-1] - middles[-1]
        return np.clip(np.concatenate(([ends[0]], middles, [ends[1]])), self.x.low, self.x.high)


def color(place: float, scale: str) -> tuple[int, ...] | None:
    """Returns the red, green and blue at a position of a color scale; None for NaN.

    >>> color(0.0, "log"), color(0.5, "log"), color(math.nan, "log")
    ((243, 241, 235), (132, 171, 211), None)
    """
    return None if math.isnan(place) else interpolate(place, SCALES[scale])


def interpolate(place: float, stops: Stops) -> tuple[int, ...]:
    """Returns the red, green and blue at a position between some colors."""
    at = place * (len(stops) - 1)
    under = min(int(at), len(stops) - 2)
    pairs = zip(stops[under], stops[under + 1], strict=True)
    return tuple(round(a + (b - a) * (at - under)) for a, b in pairs)
