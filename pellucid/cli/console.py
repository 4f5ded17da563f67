"""Drawing with rich: the console of every command, and progress bars on standard error."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any

from rich import console
from rich.segment import Segment

from pellucid.base.formatting import escape_controls

Pause = Callable[[], AbstractContextManager[None]]
"""Returns a block in which one of the counted things is printed: the bar is away, and then counts it."""


class Console(console.Console):
    @property
    def file(self) -> IO[str]:
        """The stream behind those that escape: the codes that rich adds must arrive, the text is escaped.

        A live display puts a proxy of its own before standard output and error, so there may be two to pass.
        """
        file = super().file
        while (behind := getattr(file, "rich_proxied_file", file)) is not file:
            file = behind
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """The reader of our output, such as `head`, has left: that is for `main`, and no failed check."""
        raise BrokenPipeError

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Text is escaped before rich adds its own control codes, wherever it comes from."""
        return super()._render_buffer(
            part if part.control else Segment(escape_controls(part.text), part.style) for part in buffer
        )


def open_bar(*columns: Any, **settings: Any) -> Any:
    """Returns a progress bar of rich; a column is one of rich's, by its name, or a text, or already made."""
    from rich import progress

    made = []
    for column in columns:
        kind = getattr(progress, f"{column}Column", None)
        is_text = kind is None and isinstance(column, str)
        made.append(kind() if kind else progress.TextColumn(column, markup=False) if is_text else column)
    return progress.Progress(*made, console=Console(stderr=True), **settings)


@contextmanager
def counting_bar(unit: str, total: int) -> Iterator[Pause]:
    """Yields the pause for each of `total`; a bar is drawn on a terminal, for more than one."""
    if total < 2 or not sys.stderr.isatty():
        yield nullcontext
        return
    columns = ("Bar", "MofNComplete", unit, "TimeElapsed", "TimeRemaining")
    with open_bar(*columns, transient=True) as bar:
        task = bar.add_task("", total=total)

        @contextmanager
        def pause() -> Iterator[None]:
            bar.stop()
            yield
            bar.advance(task)
            bar.start()

        yield pause


@contextmanager
def byte_bar() -> Iterator[Callable[[int], None]]:
    """Yields what counts further bytes of a text of unknown length; a bar is drawn on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with open_bar("Bar", "Download", "TransferSpeed", "TimeElapsed", transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.advance(task, count)


@contextmanager
def rate_bar(unit: str = "tokens") -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields what takes a name, how much is done and the total: a bar with the speed and the remaining time
    on a terminal. Another name starts another bar."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    from pellucid.base.formatting import format_count

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            of = "" if task.total is None else f" of {format_count(task.total)}"
            speed = f", {task.speed:,.0f} a second" if task.speed else ""
            return Text(f"{format_count(task.completed)}{of} {unit}{speed}")

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=24)),
        BarColumn(bar_width=20),
        Rate(table_column=Column(no_wrap=True)),
        "TimeElapsed",
        "TimeRemaining",
    )
    with open_bar(*columns, transient=True, speed_estimate_period=60) as bar:
        tasks = {}

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update
