"""Labels: the token at an index of an axis, as a page may show it."""

from collections.abc import Sequence

from pellucid.base.formatting import escape_controls
from pellucid.explanation.trace import Trace


def show_label(trace: Trace, name: str, axis: str, i: int, index: Sequence[int | None] = ()) -> str | None:
    """Returns the token at index i of an axis, with escapes for characters that would show nothing or reorder
    the text around them; None where there is none. Where `index` fixes b, it is that prompt's token."""
    text = trace.label(name, axis, i, index)
    return text if text is None else escape_controls(text, keep="")
