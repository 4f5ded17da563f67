"""`heads`: the attention patterns of all layers and heads as small pictures."""

import base64
import re
from typing import Annotated, Any

import numpy as np

from pellucid.dtypes import Array
from pellucid.errors import UsageError
from pellucid.explain.trace import Trace
from pellucid.explorer.question import Range
from pellucid.explorer.session import HeldTrace, Session

LARGEST = 32
"""Rows and columns of a picture: a longer pattern is pooled."""
MOST_BYTES = 300_000
"""Bytes of all pictures; they are pooled further where they would have more."""
_PATTERN = re.compile(r"blocks\.(\d+)\.attn\.pattern")


def answer(
    session: Session, trace: HeldTrace, b: Annotated[int, Range(0, 1_000_000)] = 0
) -> dict[str, Any]:
    """Returns of each layer the attention pattern [heads, rows, cols] of prompt `b` as bytes in base64, 255 for
    a share of 1; a pattern of more than 32 positions is pooled, the largest share of each field."""
    found = trace.trace
    names = [name for name in found.tape.values if _PATTERN.fullmatch(name)]
    patterns = [found.value(name) for name in names]
    if not patterns or any(p.ndim != 4 or p.shape[1:] != patterns[0].shape[1:] for p in patterns):
        raise UsageError(_describe_absence(found, bool(patterns)))
    batch, heads, rows, cols = patterns[0].shape
    if b >= batch:
        raise UsageError(f"there is no prompt b={b}: b has 0…{batch - 1}.")
    pictures = [_draw(pattern[b]) for pattern in patterns]
    tokens = [found.label(names[0], "s", s, (b, None, None, None)) for s in range(cols)]
    return {
        "patterns": names,
        "layers": len(names),
        "heads": heads,
        "rows": pictures[0].shape[1],
        "cols": pictures[0].shape[2],
        "is_pooled": pictures[0].shape[1:] != (rows, cols),
        "pictures": [base64.b64encode(picture.tobytes()).decode() for picture in pictures],
        "labels": tokens,
        "b": b,
    }


def _draw(pattern: Array) -> Array:
    """Returns round(255 p) of a pattern [H T S], at most 32 × 32 per head."""
    for axis in (1, 2):
        size = pattern.shape[axis]
        if size > LARGEST:
            starts = np.arange(LARGEST) * size // LARGEST
            pattern = np.maximum.reduceat(pattern, starts, axis)
    return np.rint(255 * np.clip(np.nan_to_num(pattern, nan=0.0), 0, 1)).astype(np.uint8)


def _describe_absence(trace: Trace, has_patterns: bool) -> str:
    if has_patterns:
        return "the attention patterns of the layers differ in shape: open one by its name."
    return "this trace has no attention patterns."
