"""`heads`: the attention patterns of all layers and heads as small pictures."""

import base64
import math
import re
from typing import Annotated, Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError
from pellucid.base.schema import Range
from pellucid.explanation.trace import Trace
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

LARGEST = 32
"""Rows and columns of a picture: a longer pattern is pooled."""
MOST_BYTES = 150_000
"""Bytes of all pictures: where they would have more, they are pooled further."""
LISTED = 8
"""Values of attention that a message lists."""
_PATTERN = re.compile(r"blocks\.\d+\.attn\.pattern")


def answer(session: Session, trace: HeldTrace, b: Annotated[int, Range(0, 1_000_000)] = 0) -> dict[str, Any]:
    """Returns the attention pattern [heads, rows, cols] of each layer on prompt `b` as bytes in base64, 255
    for a share of 1. A pattern of more than 32 positions is pooled: each field shows its largest share."""
    found = trace.trace
    names = [name for name in found.tape.values if _PATTERN.fullmatch(name)]
    if not names:
        raise UsageError(_describe_absence(found))
    patterns = [found.value(name) for name in names]
    if patterns[0].ndim != 4 or any(pattern.shape != patterns[0].shape for pattern in patterns):
        raise UsageError(f"the attention patterns differ in shape: open one by its name, {names[0]}.")
    batch, heads, rows, cols = patterns[0].shape
    if b >= batch:
        raise UsageError(f"{names[0]} has no b={b}: b has 0…{batch - 1}.")
    most = min(LARGEST, math.isqrt(MOST_BYTES // (len(names) * heads)) or 1)
    pictures = [_draw(pattern[b], most) for pattern in patterns]
    return {
        "patterns": names,
        "layers": len(names),
        "heads": heads,
        "rows": min(rows, most),
        "cols": min(cols, most),
        "is_pooled": max(rows, cols) > most,
        "pictures": [base64.b64encode(picture.tobytes()).decode() for picture in pictures],
        "labels": [show_label(found, names[0], "s", s, (b, None, None, None)) for s in range(cols)],
        "b": b,
    }


def _draw(pattern: Array, most: int) -> Array:
    """Returns 255 p of a pattern [H T S], rounded, at most `most` × `most` numbers for each head."""
    for axis in (1, 2):
        if (size := pattern.shape[axis]) > most:
            pattern = np.maximum.reduceat(pattern, np.arange(most) * size // most, axis)
    shares = np.clip(np.nan_to_num(pattern, nan=0.0), 0, 1)
    return np.asarray(np.rint(255 * shares), dtype=np.uint8)


def _describe_absence(trace: Trace) -> str:
    """Says what the trace holds of attention where it holds no pattern whole, as of tiled attention."""
    layer = next((name.partition(".attn.")[0] for name in trace.tape.values if ".attn." in name), None)
    if layer is None:
        return "this trace has no attention."
    own = [name for name in trace.tape.steps if name.startswith(f"{layer}.attn.")]
    listed = ", ".join(own[:LISTED]) + " …" * (len(own) > LISTED)
    return f"this model never holds an attention pattern whole; of attention this trace has {listed}."
