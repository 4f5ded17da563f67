"""The numbers along an axis, for every picture that has one."""

import math
from collections.abc import Iterator


def ticks(low: float, high: float, log: bool, most: int = 6) -> Iterator[tuple[str, float]]:
    """Round numbers between two ends, about `most` at most, each with its place from 0 to 1.

    >>> list(ticks(0, 2000, log=False))
    [('0', 0.0), ('500', 0.25), ('1,000', 0.5), ('1,500', 0.75), ('2,000', 1.0)]
    """
    if log:
        start, end = math.log10(low), math.log10(high)
        steps = (1, 2, 5) if end - start < 2.5 else (1,)
        every = max(1, round((end - start) / 6))
        decades = range(math.floor(start), math.ceil(end) + 1)
        values = [step * 10.0**decade for decade in decades if decade % every == 0 for step in steps]
        places = [(math.log10(value) - start) / (end - start) for value in values]
    else:
        rough = (high - low) / most
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
        values = [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        places = [(value - low) / (high - low) for value in values]
    for value, place in zip(values, places, strict=True):
        if -1e-9 <= place <= 1 + 1e-9:
            yield _number(value), place


def _number(value: float) -> str:
    """1,000 rather than 1e+03, and 3e−4 rather than 0.0003.

    >>> [_number(value) for value in (0.0003, -12.5, 2e9)]
    ['3e−4', '−12.5', '2e9']
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value:,.10g}".replace("-", "−")
    mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
