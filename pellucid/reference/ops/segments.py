"""The segment mask: positions of a packed row see each other only inside one document."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Attrs, Index, Reads, Shape, one, operation, zeros


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    b, _, t, s = index
    return Reads(((one(b), one(t)), (one(b), one(s))), attrs, zeros(index))


@operation(_reads, "{y} = 1 if {0} = {1}, else 0")
def same_segment(queries: Any, keys: Any) -> Any:
    """y = 1 where query and key are of one segment, else 0: segments are whole numbers."""
    apart = queries[:, None, :, None] - keys[:, None, None, :]
    return 1.0 - np.minimum(apart * apart, 1.0)
