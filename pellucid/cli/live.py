"""The view of a run while it trains: a panel in a terminal, plain lines everywhere else.

    with view("runs/a", peak=1e12) as show:
        for event in trainer.run():
            show(event)

A view computes nothing that matters: what goes wrong in it ends the view, never the run.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import numpy as np
import rich.console
from rich.console import ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pellucid.base.formatting import escape_controls, format_clock
from pellucid.cli.console import Console
from pellucid.cli.progress import RunProgress, describe_compilation, describe_reschedule
from pellucid.training.events import (
    Compared,
    Ended,
    EndReason,
    Evaluated,
    Event,
    Rescheduled,
    Saved,
    Skipped,
    Started,
    Stepped,
)

OFTEN, SHARE = 0.25, 0.02
"""Seconds from one picture to the next; and the most of a run's time that drawing may take."""
SIDE_BY_SIDE = 110
"""Columns from which on the curve stands beside the figures."""
FIGURES = 52
"""Columns of the figures beside the curve."""
SAMPLE_LINES, SAMPLE_LEAST, CURVE_LINES, CURVE_LEAST, CURVE_COLUMNS = 6, 3, 8, 3, 120


def view(name: str = "", peak: float | None = None) -> "LiveView | PlainView":
    """The panel where there is a terminal that can move its cursor, otherwise lines.

    `peak`: floating-point operations a second that this machine was measured to reach, if it was.
    """
    console = Console(highlight=False)
    live = console.file.isatty() and not console.is_dumb_terminal
    return LiveView(name, peak, console) if live else PlainView(name, peak)


class PlainView:
    """One line per event, its kind first: the first steps, then some, and all that is not a step."""

    FIRST, EVERY, AT_LEAST = 3, 2.0, 30.0
    """Steps shown at the start; then every hundredth part of the run, but at most one in EVERY seconds and at
    least one in AT_LEAST seconds."""

    def __init__(self, name: str = "", peak: float | None = None, file: TextIO | None = None) -> None:
        self.progress, self.name, self.file = RunProgress(peak), name, file
        self._left, self._step, self._seconds, self._silent = self.FIRST, 0, 0.0, False

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        if self._silent:
            return
        try:
            self.progress(event)
            for line in self._lines(event):
                print(line, file=self.file, flush=True)
        except Exception:  # the reader has left, the disk is full: the run goes on without a view
            self._silent = True

    def _lines(self, event: Event) -> Iterator[str]:
        now = self.progress
        at = f"{event.step}/{now.steps}"
        match event:
            case Started():
                self._left, self._step = self.FIRST, event.step
                facts = f"{event.parameters:,} parameters, {event.tokens_per_step:,} tokens a step"
                floor = "" if event.floor is None else f", entropy floor {event.floor:.4f}"
                kind = "resume" if event.resumed else "start"
                facts = f"{facts}, {event.device}, {describe_compilation(event)}{floor}"
                yield f"{kind} {at} {self.name}: {facts}".replace(" :", ":")
            case Stepped() if self._due(event):
                self._step, self._seconds = event.step, event.seconds
                figures = now.describe(("loss", "smoothed", "lr", "grad_norm", "speed", "mfu", "left"))
                yield f"step {at} {figures}"
            case Evaluated():
                figures = now.describe(("validation", "best", "floor", "gap", "learned", "bits", "accuracy"))
                first = next(
                    (line for line in escape_controls(event.sample, keep="\n").splitlines() if line.strip()),
                    "",
                )
                yield f"evaluation {at} {figures}{' | ' * bool(first)}{_short(first.strip(), 80)}"
            case Compared():
                yield f"compared {at} {event.message}"
            case Saved():
                yield f"saved {at} {event.folder} in {event.seconds:.1f} s"
            case Rescheduled():
                yield f"rescheduled {at} {describe_reschedule(event)}"
            case Skipped():
                about = f": {event.about}" if event.about else ""
                yield f"skipped {at} {event.name} was not finite; no weight was changed{about}"
            case Ended():
                kind = "interrupted" if event.reason is EndReason.INTERRUPTED else "end"
                loss = "" if math.isnan(event.loss) else f"loss {event.loss:.4f}"
                best = "" if event.best is None else f"best {event.best:.4f}"
                figures = "  ".join(filter(None, [loss, best, f"{format_clock(event.seconds)} of training"]))
                yield f"{kind} {at} {event.message}  {figures}"

    def _due(self, event: Stepped) -> bool:
        self._left -= 1
        waited, steps = event.seconds - self._seconds, event.step - self._step
        some = steps * 100 >= self.progress.steps and waited >= self.EVERY
        return self._left >= 0 or some or waited >= self.AT_LEAST or event.step == self.progress.steps


class LiveView:
    """One panel, drawn again a few times a second; its last state stays on the screen."""

    def __init__(
        self,
        name: str = "",
        peak: float | None = None,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(highlight=False)
        self.progress, self.name, self._now = RunProgress(peak, now), name, now
        self._live = Live(get_renderable=lambda: self, console=self.console, auto_refresh=False)
        self._next = 0.0
        self._plain: PlainView | None = None
        self._wrapped: tuple[object, list[Text]] = (None, [])

    def __enter__(self) -> "LiveView":
        self._safely(self._live.start)
        return self

    def __exit__(self, *_: object) -> None:
        if self._plain is None:
            self._safely(self._live.stop)

    def __call__(self, event: Event) -> None:
        if self._plain is not None:
            self._plain(event)
            return
        self._safely(lambda: self._see(event))

    def _see(self, event: Event) -> None:
        self.progress(event)
        begun = self._now()
        if begun < self._next and not isinstance(event, Started | Evaluated | Ended):
            return
        self._live.refresh()
        took = self._now() - begun
        self._next = begun + max(OFTEN, took / SHARE)

    def _safely(self, act: Callable[[], object]) -> None:
        """Calls `act`; its first error is printed, and from then on there are plain lines."""
        try:
            act()
        except Exception as error:
            self._plain = PlainView(self.name)
            self._plain.progress = self.progress
            with contextlib.suppress(Exception):
                self._live.stop()  # gives standard output and the cursor back
            with contextlib.suppress(Exception):
                print(f"the live view stopped ({error!r}); the run goes on.", file=sys.stderr, flush=True)

    # ---- the picture

    def __rich_console__(
        self, console: rich.console.Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if self._plain is not None:
            return
        # One column less than there is: some terminals begin a new line when the last one is written to.
        width, height = max(options.max_width - 1, 20), console.size.height
        inner = width - 4
        wide = width >= SIDE_BY_SIDE
        figures = self._figures()
        notes = list(self._notes(inner))
        room = height - 4 - len(notes) - (0 if wide else len(figures))
        sample = self._sample(inner)
        # The curve's title, axis and scale take three lines. Where there is little room, each gets its least.
        least = 0 if wide else CURVE_LEAST + 3
        sample = sample[: max(0, min(len(sample), max(room - least, SAMPLE_LEAST)))]
        lines = max(min(CURVE_LINES, room - len(sample) - 3), len(figures) - 3 if wide else 0)
        columns = min(inner - 12 - (FIGURES if wide else 0), CURVE_COLUMNS)
        curve = self._curve(columns, lines) if lines >= CURVE_LEAST and not options.ascii_only else []
        table = Table.grid(padding=(0, 2))
        for label, value in figures:
            table.add_row(Text(label, "dim"), Text(value, no_wrap=True, overflow="ellipsis"))
        body: RenderableType = Group(table, *curve)
        if wide and curve:
            body = Table.grid(padding=(0, 2))
            body.add_column(width=FIGURES)
            body.add_row(table, Group(*curve))
        title = Text(escape_controls(self.name, keep="") or "training", "bold")
        yield Panel(Group(self._bar(), body, *notes, *sample), title=title, title_align="left", width=width)

    def _bar(self) -> RenderableType:
        now = self.progress
        row = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None):
            row.add_column(ratio=ratio, no_wrap=True)
        left = now.figure("left") or ("" if now.ended else "starting" if now.stepped is None else "…")
        share = f"{now.step / max(now.steps, 1):4.0%}"
        row.add_row(
            Text(f"step {now.step:,} of {now.steps:,}"),
            ProgressBar(total=max(now.steps, 1), completed=now.step),
            Text(f"{share}  {left}"),
        )
        return row

    def _figures(self) -> list[tuple[str, str]]:
        """Label and value, of what is known."""
        now = self.progress
        rows = (
            ("loss", ("loss", "smoothed")),
            ("validation", ("validation", "best", "bits")),
            ("entropy floor", ("floor", "gap", "learned")),
            ("accuracy", ("accuracy",)),
            ("learning rate", ("lr", "grad_norm")),
            ("speed", ("speed", "mfu")),
            ("tokens", ("tokens", "memory")),
        )
        found = [(label, now.describe(names, first=False)) for label, names in rows]
        return [(label, text) for label, text in found if text]

    def _notes(self, width: int) -> Iterator[Text]:
        now = self.progress
        if now.started:
            count = f"{now.started.parameters:,} parameters on {now.started.device}"
            yield _line(f"{count}, {describe_compilation(now.started)}", "dim", width)
        if now.compared:
            yield _line(now.compared.message, "red" if now.compared.about else "dim", width)
        if now.saved:
            yield _line(f"saved {now.saved.folder} in {now.saved.seconds:.1f} s", "dim", width)
        if now.rescheduled:
            yield _line(f"{describe_reschedule(now.rescheduled)}", "dim", width)
        if now.skipped:
            times = f"{now.skips} update{'s' * (now.skips > 1)} skipped"
            yield _line(
                f"{times}; at step {now.skipped.step} {now.skipped.name} was not finite", "red", width
            )
            if now.skipped.about:
                yield _line(now.skipped.about, "red", width)
        if now.ended:
            yield _line(
                f"{now.ended.message} after {format_clock(now.ended.seconds)} of training", "bold", width
            )

    def _curve(self, width: int, height: int) -> list[Text]:
        """The loss so far, and the entropy floor in dots. The first few steps may be above the picture."""
        from pellucid.report.chart import Axis, Chart, LegendKey, Series
        from pellucid.report.text import MARGIN, write_text

        curve = self.progress.history.curve()
        if not len(curve) or width < 10:
            return []
        floor, shown = self.progress.floor, curve.values[len(curve) // 20 :]
        low, high, title = float(shown.min()), float(shown.max()), "loss"
        series = [Series(LegendKey("loss"), curve.steps, curve.values)]
        if floor is not None:
            low, high, title = min(low, floor), max(high, floor), "loss, entropy floor dotted"
            series.append(Series(LegendKey("floor"), curve.steps[[0, -1]], np.full(2, floor), "level"))
        across = Axis("steps", round(curve.steps[0]), round(curve.steps[-1]))
        lines = list(write_text(Chart(title, across, Axis("", low, high), series), width, height))
        lines[0] = f"{'':>{MARGIN}}{title}"
        return [Text(line, no_wrap=True, overflow="crop") for line in lines]

    def _sample(self, width: int) -> list[Text]:
        """The latest text of the model's own, wrapped and with a line above that says when."""
        event = self.progress.evaluated
        if event is None or not event.sample:
            return []
        if self._wrapped[0] != (event.step, width):
            text = Text(
                escape_controls(event.sample[: SAMPLE_LINES * 4 * width], keep="\n").strip("\n"),
                overflow="fold",
            )
            lines = list(text.wrap(self.console, width))
            if len(lines) > SAMPLE_LINES:
                lines = [
                    *lines[: SAMPLE_LINES - 1],
                    Text(f"{lines[SAMPLE_LINES - 1].plain[: width - 1].rstrip()}…"),
                ]
            self._wrapped = ((event.step, width), [Text(f"a sample at step {event.step:,}", "dim"), *lines])
        return self._wrapped[1]


def _line(text: str, style: str, width: int) -> Text:
    line = Text(escape_controls(text, keep="\n").replace("\n", " "), style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
