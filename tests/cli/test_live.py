"""What a person sees while a run trains, in a terminal and elsewhere."""

import dataclasses
import io
import math
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pellucid.base.formatting import format_clock
from pellucid.cli import live
from pellucid.cli.live import LiveView, PlainView
from pellucid.cli.progress import RunProgress
from pellucid.cli.terminal import SafeStream
from pellucid.training.events import Ended, EndReason, Event, Rescheduled, Skipped
from pellucid.training.history.log import read
from tests.training.sample_events import evaluated, events, folder, started, stepped

NASTY = "A [red]fox[/red] \x1b[2J\x1b]0;title\x07 \u202e\u200d 日本語 \ud83d\ttab\r\n" * 9


def screen(width: int, height: int, *shown: Event, peak: float | None = None) -> tuple[list[str], str]:
    """The last picture, and all that was ever sent to the terminal."""
    out, ticks = io.StringIO(), iter(range(10**9))
    console = Console(
        file=out, force_terminal=True, width=width, height=height, no_color=True, highlight=False, _environ={}
    )
    view = LiveView("runs/a", peak, console, now=lambda: next(ticks) / 100)
    with view:
        for event in shown:
            view(event)
    assert view._plain is None
    with console.capture() as capture:
        console.print(view)
    return re.sub(r"\x1b\[[\d;]*m", "", capture.get()).splitlines(), out.getvalue()


@pytest.mark.parametrize(("width", "height"), [(60, 24), (60, 12), (80, 40), (109, 30), (110, 30), (200, 50)])
def test_the_panel_fits_its_terminal(width: int, height: int) -> None:
    from rich.cells import cell_len

    shown = [*events(300), evaluated(300, sample=NASTY), Skipped(300, "d.blocks.2.mlp.up_proj.weight" * 9)]
    lines, _ = screen(width, height, *shown)
    assert len(lines) < max(height, 16)
    assert {cell_len(line) for line in lines} == {width - 1}
    assert lines[0].startswith("╭─ runs/a ─") and lines[-1].startswith("╰")


def test_it_shows_the_figures_the_floor_and_the_gap() -> None:
    lines, _ = screen(80, 40, *events(300, end=""), peak=1e12)
    picture = "\n".join(lines)
    for words in (
        "step 300 of 300",
        "100%",
        "1.0174  smoothed 1.0174",
        "1.2500  best 1.2500  bits/byte 1.5000",
        "0.9000  gap 0.3500",
        "3.00e-04  gradient norm 0.8",
        "25,600 tokens/s  MFU 17.9%",
        "1,228,800  memory 1.2 GB",
        "loss, entropy floor dotted",
        "1,234,567 parameters on cpu, not compiled: there is no C++ compiler here",
        "saved runs/a/checkpoints/step-0000300 in 0.3 s",
        "a sample at step 300",
        "Once upon a time.",
    ):
        assert words in picture, words
    assert re.search("[\u2801-\u28ff]", picture)


def test_a_share_above_the_peak_is_not_printed_and_says_why() -> None:
    lines, _ = screen(80, 40, *events(300, end=""), peak=1e9)
    assert any("MFU >100% (peak measured on a busy machine)" in line for line in lines)
    assert not any("17,9" in line for line in lines)


def test_what_is_not_known_is_not_shown() -> None:
    lines, _ = screen(80, 40, started(9, floor=None), stepped(1))
    picture = "\n".join(lines)
    for words in ("floor", "gap", "learned", "MFU", "validation", "best", "sample", "saved"):
        assert words not in picture, words


def test_the_share_that_is_learned_is_shown_where_it_is_known() -> None:
    shown = (started(100), dataclasses.replace(evaluated(100), learned=0.825))
    assert any("gap 0.3500  learned 82.5%" in line for line in screen(80, 40, *shown)[0])
    assert not any("learned" in line for line in screen(80, 40, started(100), evaluated(100))[0])


def test_a_loss_above_the_bigram_baseline_is_nothing_learned_and_not_less() -> None:
    (found,) = lines(replace(evaluated(100), learned=-3.283))
    assert "learned 0.0%" in found


def test_the_time_that_is_left_does_not_count_the_first_step_which_compiles() -> None:
    now = [0.0]
    progress = RunProgress(now=lambda: now[0])
    progress(started(101))
    for step in range(1, 12):
        now[0] = 60.0 + 2.0 * (step - 1)
        progress(stepped(step))
    assert progress.figure("left") == "3:00 left"


def test_a_resumed_run_shows_the_curve_and_the_best_loss_of_before(tmp_path: Path) -> None:
    log = folder(tmp_path / "a", 300, end="") / "log.jsonl"
    progress, whole = RunProgress(), RunProgress()
    progress.remember(read(log))
    for event in (started(400, step=300), stepped(301)):
        progress(event)
    for event in (*events(300, end=""), stepped(301)):
        whole(event)
    assert progress.history.curve().steps.tolist() == whole.history.curve().steps.tolist()
    assert progress.figure("best") == "1.2500"


def test_a_new_number_of_steps_is_shown_and_counted() -> None:
    shown = (started(100), stepped(10), Rescheduled(10, 60, 100), stepped(11))
    assert any(line.startswith("rescheduled 10/60 60 steps instead of 100") for line in lines(*shown))
    picture = "\n".join(screen(80, 40, *shown)[0])
    assert "step 11 of 60" in picture and "60 steps instead of 100" in picture


def test_a_sample_cannot_do_anything_to_the_terminal() -> None:
    lines, sent = screen(100, 40, started(9), stepped(1), evaluated(1, sample=NASTY))
    assert "\x1b[2J" not in sent and "\x07" not in sent and "\u202e" not in sent and "\ud83d" not in sent
    picture = "\n".join(lines)
    assert r"A [red]fox[/red] \x1b[2J\x1b]0;title\x07 \u202e\u200d 日本語 \ud83d\x09tab\x0d" in picture
    at = next(i for i, line in enumerate(lines) if "a sample" in line)
    assert len(lines) - at - 2 == live.SAMPLE_LINES


def test_the_codes_of_the_live_view_reach_a_terminal_past_the_stream_that_escapes_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    raw = Terminal()
    monkeypatch.setattr(sys, "stdout", SafeStream(raw))
    monkeypatch.setenv("TERM", "xterm")
    with live.view("runs/a") as show:
        assert isinstance(show, LiveView)
        for event in (started(9), stepped(1), evaluated(1, sample=NASTY)):
            show(event)
        print("printed \x1b[2J meanwhile")
    assert "\x1b[1A" in raw.getvalue() and r"\x1b[1A" not in raw.getvalue()
    assert "printed" in raw.getvalue() and "\x1b[2J" not in raw.getvalue()


def test_without_colour_no_colour_is_sent() -> None:
    _, sent = screen(80, 40, *events(50), Skipped(50, "loss"))
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", sent) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2", "22"}


def test_the_picture_is_drawn_over_the_last_one_and_the_last_one_stays() -> None:
    _, sent = screen(80, 40, *events(300))
    frames = sent.split("╭─")
    assert all("\x1b[1A" in frame for frame in frames[1:-1])
    assert "finished after 0:48 of training" in frames[-1] and "\x1b[1A" not in frames[-1]


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e30, 0.0, -1.0])
def test_a_loss_that_is_none_breaks_nothing(loss: float) -> None:
    lines, _ = screen(80, 40, started(9), stepped(1, loss), stepped(2, loss), stepped(3))
    assert any("step 3 of 9" in line for line in lines)
    lines, _ = screen(80, 40, started(0), Ended(0, EndReason.FINISHED, loss, None, 0.0))
    assert any("step 0 of 0" in line for line in lines)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_without_symbols_gets_a_plain_frame(encoding: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    console = Console(file=file, force_terminal=True, width=80, height=40, _environ={})
    with LiveView("a", console=console) as view:
        for event in events(50):
            view(event)
    file.flush()
    assert ("╭".encode() in raw.getvalue()) == (encoding == "utf-8")


def test_a_view_that_breaks_tells_so_once_and_goes_on_in_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: LiveView) -> list[tuple[str, str]]:
        if self.progress.step:
            raise ZeroDivisionError("of the view")
        return []

    monkeypatch.setattr(LiveView, "_figures", broken)
    stdout, out = sys.stdout, io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=40, _environ={})
    with LiveView("runs/a", console=console) as view:
        for event in events(300):
            view(event)
    assert sys.stdout is stdout
    assert out.getvalue().endswith("\x1b[?25h"), "the cursor is back"
    message = capsys.readouterr()
    assert message.err == "the live view stopped (ZeroDivisionError('of the view')); the run goes on.\n"
    assert "evaluation 300/300 loss 1.2500" in message.out and "end 300/300 finished" in message.out


@pytest.mark.timed
def test_an_event_costs_less_than_a_millisecond() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, height=50, _environ={})
    shown = list(events(100_000, every=1000))
    begun = time.perf_counter()
    with LiveView("runs/a", 1e12, console) as view:
        for event in shown:
            view(event)
    assert (time.perf_counter() - begun) / len(shown) < 1e-3
    assert len(out.getvalue()) < 10_000_000


# ---- lines


def lines(*shown: Event, peak: float | None = None) -> list[str]:
    file = io.StringIO()
    with PlainView("runs/a", peak, file) as view:
        for event in shown:
            view(event)
    return file.getvalue().splitlines()


def test_lines_begin_with_their_kind_and_are_a_few() -> None:
    """1,000 steps of 0.16 s: the first three, then one in 13, which take two seconds, and the last."""
    found = lines(*events(1000))
    kinds = [line.split()[0] for line in found]
    assert kinds[:4] == ["start", "step", "step", "step"] and kinds[-1] == "end"
    steps = [int(line.split()[1].split("/")[0]) for line in found if line.startswith("step ")]
    assert steps[:5] == [1, 2, 3, 16, 29] and steps[-1] == 1000
    assert len(steps) == 80
    assert "\x1b" not in "".join(found)


def test_a_long_run_has_a_line_every_half_minute_at_least() -> None:
    found = [line for line in lines(*events(100_000, every=10**9)) if line.startswith("step ")]
    assert 500 < len(found) < 600


def test_lines_say_what_is_known() -> None:
    found = lines(*events(100), Skipped(7, "d.embed.weight"), peak=1e12)
    assert found[0] == (
        "start 0/100 runs/a: 1,234,567 parameters, 4,096 tokens a step, cpu, "
        "not compiled: there is no C++ compiler here, entropy floor 0.9000"
    )
    assert found[1] == (
        "step 1/100 loss 7.8614  smoothed 7.8614  lr 3.00e-04  gradient norm 0.8  25,600 tokens/s  MFU 17.9%"
    )
    assert found[-4:] == [
        "evaluation 100/100 loss 1.2500  best 1.2500  entropy floor 0.9000  gap 0.3500  bits/byte 1.5000"
        " | Once upon a time.",
        "saved 100/100 runs/a/checkpoints/step-0000100 in 0.3 s",
        "end 100/100 finished  loss 1.0000  best 1.2500  0:16 of training",
        "skipped 7/100 d.embed.weight was not finite; no weight was changed",
    ]
    assert lines(replace(started(9), step=3, resumed=True))[0].startswith("resume 3/9 runs/a: ")


def test_a_sample_is_one_line_without_codes() -> None:
    (found,) = lines(evaluated(1, sample=f"\n\n{NASTY}"))
    assert r"| A [red]fox[/red] \x1b[2J" in found and found.isprintable()


def test_a_reader_that_has_left_does_not_end_the_run() -> None:
    file = io.StringIO()
    view = PlainView("runs/a", file=file)
    view(started(9))
    file.close()
    view(stepped(1))
    view(stepped(2))


def test_the_view_is_lines_where_there_is_no_terminal() -> None:
    assert isinstance(live.view("runs/a"), PlainView)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (59.6, "1:00"),
        (754, "12:34"),
        (3723, "1:02:03"),
        (273906, "3 d 4:05:06"),
        (math.inf, "?"),
    ],
)
def test_a_clock_reads_as_people_write_it(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text
