"""`log`: the new lines of a run's log."""

from pathlib import Path
from typing import Annotated, Any

from pellucid.base.errors import file_errors
from pellucid.base.formatting import escape_controls
from pellucid.base.schema import Length, Range
from pellucid.server.explorer.questions.runs import find_run
from pellucid.server.explorer.session import Session

MOST_LINES, MOST_BYTES = 200, 200_000
"""Lines of one answer, and bytes that are read for it."""


def answer(
    session: Session,
    run: Annotated[str, Length(64)],
    from_: Annotated[int, Range(0, 2**53)] = 0,
) -> dict[str, Any]:
    """Returns the lines of the log of a run that `runs` lists, from a byte on, at most 200 of them; `next` is
    the byte from which to ask on. Where the log has become shorter, since a resumed run repeats steps, it is
    read from its beginning."""
    from pellucid.training.history.log import parse_line
    from pellucid.training.saving.run_folder import LOG

    start, data, size = _read_from(find_run(session, run) / LOG, from_)
    lines, at = list[dict[str, Any]](), 0
    while len(lines) < MOST_LINES and (end := data.find(b"\n", at)) >= 0:
        if (line := parse_line(data[at:end])) is not None:  # the first may be half a line
            lines.append({key: _clean(key, value) for key, value in line.items()})
        at = end + 1
    if not at and len(data) == MOST_BYTES:  # a line that no answer can hold
        at = len(data)
    is_cut = len(lines) == MOST_LINES or len(data) == MOST_BYTES
    return {"lines": lines, "from": start, "next": start + at, "has_more": is_cut and start + at < size}


def _read_from(path: Path, start: int) -> tuple[int, bytes, int]:
    """Returns the byte that was read first, the bytes from there on, and the size of the file."""
    if not path.is_file():  # the run has not begun
        return 0, b"", 0
    with file_errors("read", f"{path.parent.name}/{path.name}"), path.open("rb") as file:
        size = file.seek(0, 2)
        start = start if start <= size else 0
        file.seek(start)
        return start, file.read(MOST_BYTES), size


def _clean(key: str, value: Any) -> Any:
    """Returns a figure or text of a line: of a path the last part, and no characters that show nothing."""
    if not isinstance(value, str):
        return value
    return escape_controls(Path(value).name if key == "folder" else value)
