"""`pellucid sheet`: sheets of any run in every format, and one sentence for a request that cannot be met."""

import json
import time
from pathlib import Path

import pytest

import pellucid
from pellucid.cli import sheet as command
from pellucid.learning.lessons.ladder import find_lesson
from pellucid.learning.sheets.file import fill_key, format_sheet, read_sheet
from pellucid.learning.sheets.make import make_sheet
from tests.cli.commands import Done, Shell


def refuse(done: Done) -> str:
    """Returns the message of a request that was refused: one line, and no file."""
    assert done.code == 2 and not list(Path.cwd().iterdir())
    assert len(done.err.strip().splitlines()) == 1
    return done.err


FOCUS = ("--focus", "probs[t=1]")


@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_a_sheet_is_written_in_each_format(shell: Shell, ending: str) -> None:
    done = shell("sheet", "abcd", "A B", *FOCUS, "-o", f"ab.{ending}")
    assert done.code == 0 and Path(f"ab.{ending}").exists() and "15 boxes" in done.out
    if ending != "html":
        sheet = read_sheet(Path(f"ab.{ending}"))
        assert [box.symbol for box in sheet.boxes if box.focus] == ["p[1,A]", "p[1,B]", "p[1,C]", "p[1,D]"]
        assert sheet.source["prompts"] == ["A B"]


def test_without_a_file_the_sheet_is_printed(shell: Shell) -> None:
    done = shell("sheet", "abcd", "A B", *FOCUS)
    assert done.code == 0 and "(15) p[1,D] = ____" in done.out and "pellucid-sheet" not in done.out


def test_a_key_has_every_answer(shell: Shell) -> None:
    assert shell("sheet", "abcd", "A B", *FOCUS, "--key", "-o", "key.md").code == 0
    sheet = read_sheet(Path("key.md"))
    assert sheet.answers == fill_key(sheet).answers
    assert "____" not in shell("sheet", "abcd", "A B", *FOCUS, "--key").out


def test_a_level_shows_some_answers(shell: Shell) -> None:
    assert "____" not in shell("sheet", "abcd", "A B", *FOCUS, "--level", 0).out
    some, every = (shell("sheet", "abcd", "A B", *FOCUS, "--level", level).out for level in (1, 2))
    assert 0 < some.count("____") < every.count("____")


def test_gradients_and_updates_are_asked(shell: Shell) -> None:
    focus = ("--focus", "d.unembed.weight[c=0]", "--boxes", 60)
    out = shell("sheet", "abcd", "A B", "--target", "C", *focus).out
    assert "Backward pass" in out and "dW_U[0,A]" in out and "A B → C" in out
    focus = ("--focus", "unembed.weight@1[v=2,c=1]", "--update", "adamw", "--lr", "0.1")
    out = shell("sheet", "abcd", "A B", "--target", "C", *focus).out
    assert "## Update" in out and "rule adamw, lr 0.1" in out


def test_other_forms_are_marked_as_any_sheet(shell: Shell) -> None:
    for form, asked in (("sign", 4), ("find", 1)):
        line = ("example-3", "A B", *FOCUS, "--boxes", 40, "--form", form, "--key", "-o", f"{form}.md")
        done = shell("sheet", *line)
        assert done.code == 0, done.err
        assert f"{asked} of {asked} right" in shell("mark", f"{form}.md", "--no-record").out


def test_boxes_stop_and_digits_are_kept(shell: Shell) -> None:
    shell("sheet", "abcd", "A B", *FOCUS, "--boxes", 9, "--digits", 2, "-o", "few.json")
    few = read_sheet(Path("few.json"))
    assert len(few.boxes) == 9 and {box.decimals for box in few.boxes if box.focus} == {2}
    shell("sheet", "abcd", "A B", *FOCUS, "--stop", "logits", "-o", "stop.json")
    assert {box.step for box in read_sheet(Path("stop.json")).boxes} == {"probs"}


def test_without_a_focus_rows_are_proposed(shell: Shell) -> None:
    done = shell("sheet", "abcd", "A B")
    assert done.code == 0 and "pellucid sheet abcd 'A B' --focus \"probs[t=1]\"" in done.out
    done = shell("sheet", "abcd", "A B", "-o", "ab.json")
    assert done.code == 0 and "probs[t=1]" in done.err
    assert read_sheet(Path("ab.json")).source["focus"] == ["probs[t=1]"]


def test_a_file_is_replaced_only_with_force(shell: Shell) -> None:
    Path("notes.md").write_text("my notes")
    assert "notes.md" in shell("sheet", "abcd", "A B", *FOCUS, "-o", "notes.md", "--force").err
    assert Path("notes.md").read_text() == "my notes"
    shell("sheet", "abcd", "A B", *FOCUS, "-o", "ab.md")
    assert "--force" in shell("sheet", "abcd", "A B", *FOCUS, "-o", "ab.md").err
    assert shell("sheet", "abcd", "A B", *FOCUS, "-o", "ab.md", "--force").code == 0


def test_a_lesson_has_a_sheet(shell: Shell) -> None:
    assert shell("sheet", "lesson-13", "-o", "13.json").code == 0
    sheet = read_sheet(Path("13.json"))
    assert (sheet.lesson, sheet.level) == (13, 2) and not any(box.shown for box in sheet.boxes)
    worked = shell("sheet", "lesson-13", "--level", 0)
    assert worked.code == 0 and "____" not in worked.out


def test_level_3_needs_a_shipped_sheet(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    # the loaded lesson itself: it may have read its sheet before, and keeps it
    monkeypatch.setitem(vars(find_lesson(13).program), "transfer", None)
    message = refuse(shell("sheet", "lesson-13", "--level", 3, "-o", "13.md"))
    assert "13" in message and "level 3" in message


def test_each_sheet_of_a_lesson_says_which_it_is(shell: Shell) -> None:
    done = shell("sheet", "lesson-18", "-o", "18.json")
    assert done.code == 0 and "--part 1" in done.err
    shell("sheet", "lesson-18", "--part", 2, "-o", "18-2.json")
    first, second = (read_sheet(Path(name)) for name in ("18.json", "18-2.json"))
    assert (first.source["part"], second.source["part"]) == (1, 2) and first.title != second.title


def test_another_seed_is_another_example(shell: Shell) -> None:
    first, other = (shell("sheet", "lesson-13", "--seed", seed).out for seed in (0, 1))
    assert first != other and first == shell("sheet", "lesson-13").out


def test_a_review_without_a_record_says_what_to_do(shell: Shell) -> None:
    done = shell("sheet", "review")
    assert done.code == 0 and "pellucid learn" in done.out


def test_a_run_that_takes_its_time_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATIENCE", 0.01)
    with command.progress("running"):
        time.sleep(0.1)
    with command.progress("not slow"):
        pass
    assert capsys.readouterr().err == "running …\n"


@pytest.mark.timed
def test_a_sheet_of_a_toy_trace_takes_half_a_second_and_200_kilobytes() -> None:
    trace = pellucid.load("abcd").trace("A B", target="C", update="sgd")
    focus = [f"d.blocks.0.attn.{name}_proj.weight" for name in "qkv"] + ["unembed.weight@1", "probs@1[t=1]"]
    took = []
    for _ in range(3):
        start = time.perf_counter()
        sheet = make_sheet(trace, focus, boxes=150)
        took.append(time.perf_counter() - start)
    assert len(sheet.boxes) > 60 and min(took) < 0.5
    assert len(format_sheet(sheet).encode()) <= 200_000
    assert json.loads(format_sheet(sheet))["version"] == 1
