"""A progress bar on standard error, which makes way for what is printed meanwhile."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Pause = Callable[[], AbstractContextManager[None]]
"""Returns a block in which one of the counted things is printed: the bar is away, and then counts it."""


@contextmanager
def counting_bar(unit: str, total: int) -> Iterator[Pause]:
    """Yields the pause for each of `total`; a bar is drawn on a terminal, for more than one."""
    if total < 2 or not sys.stderr.isatty():
        yield nullcontext
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    from pellucid.cli.console import Console

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
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
    from rich.progress import BarColumn, DownloadColumn, TimeElapsedColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from pellucid.cli.console import Console

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.advance(task, count)


@contextmanager
def rate_bar(unit: str = "tokens") -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields what takes a name, how much is done and the total: a bar with the speed and the remaining time
    on a terminal. Another name starts another bar."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    from pellucid.base.formatting import format_count
    from pellucid.cli.console import Console

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            of = "" if task.total is None else f" of {format_count(task.total)}"
            speed = f", {task.speed:,.0f} a second" if task.speed else ""
            return Text(f"{format_count(task.completed)}{of} {unit}{speed}")

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=24)),
        BarColumn(bar_width=20),
        Rate(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=60) as bar:
        tasks = {}

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update
