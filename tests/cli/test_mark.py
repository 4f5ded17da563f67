"""`pellucid mark`: exit codes, what is printed, and answers that survive an interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pellucid.learning.sheets.file import read_sheet, write_sheet
from pellucid.learning.sheets.history import Skill, read_record
from pellucid.learning.sheets.sheet import Sheet
from tests.cli.commands import Shell
from tests.learning.sheets.by_hand import KEY, SHEET, answer, answer_only


def save(sheet: Sheet, name: str = "sheet.json") -> str:
    write_sheet(Path(name), sheet)
    return name


@pytest.mark.parametrize("name", ["sheet.json", "sheet.md"])
def test_a_right_sheet_exits_0(shell: Shell, name: str) -> None:
    done = shell("mark", save(answer(), name))
    assert (done.code, done.out.splitlines()[-1]) == (0, "8 of 8 right")


def test_an_empty_sheet_is_open_and_not_wrong(shell: Shell) -> None:
    done = shell("mark", save(SHEET))
    assert (done.code, done.out.splitlines()[-1]) == (0, "0 of 8 right, 8 open")
    assert not read_record().entries


def test_a_wrong_box_exits_1_with_one_line_per_box_that_is_not_plainly_right(shell: Shell) -> None:
    slipped = answer(E0="1.7487", T="5.0688", P0="0.345", P1="0.66", Z="x", L="0.4622", N="")
    done = shell("mark", save(slipped, "sheet.md"))
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[1].split()[:2] == ["(1)", "E0"]
    marks = {line.split()[1]: line for line in lines[1:7]}
    assert list(marks) == ["E0", "T", "P0", "P1", "Z", "L"]
    assert "wrong" in marks["E0"] and "right from your numbers" in marks["T"]
    assert "rounding" in marks["P1"] and "not a number" in marks["Z"]
    assert "logarithm to base 10" in marks["L"]
    assert "The first wrong box is E0" in done.out
    assert "P0 + P1 = 1.005" in done.out
    assert lines[-1] == "4 of 8 right (2 from your numbers, 1 rounding), 2 wrong, 1 not a number, 1 open"
    assert all(len(line) <= 80 for line in lines)


def test_the_mistake_behind_the_first_wrong_box_is_explained(shell: Shell) -> None:
    done = shell("mark", save(answer(L="0.4791")))
    assert "gives 0.4791: logarithm to base 10" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("stage", "word"), [(1, "meaning of L"), (2, "softmax(S)"), (3, "-ln(0.3318)"), (4, "L = 1.1032")]
)
def test_hints_come_one_at_a_time(shell: Shell, stage: int, word: str) -> None:
    done = shell("mark", save(answer(L="9")), "--hint", stage)
    assert done.code == 1 and word in done.out and len(done.out.splitlines()) <= 2
    assert not read_record().entries


def test_a_hint_where_nothing_is_wrong_is_for_the_first_open_box(shell: Shell) -> None:
    assert "meaning of L" in shell("mark", save(answer(L="")), "--hint", 1).out
    assert "Nothing is wrong" in shell("mark", save(answer(), "right.json"), "--hint", 1).out
    assert shell("mark", "right.json", "--hint", 5).code == 2
    unread = shell("mark", save(answer(L="about 1"), "unread.json"), "--hint", 1)
    assert unread.code == 1 and unread.out == "  not a number: L.\n"


def test_json_is_the_marking(shell: Shell) -> None:
    done = shell("mark", save(answer(L="0.4791")), "--json")
    data = json.loads(done.out)
    assert done.code == 1 and data["totals"]["wrong"] == 1
    assert data["boxes"][-1]["mistakes"][0]["name"] == "logarithm to base 10"


def test_a_file_that_cannot_be_read_exits_2(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    for name in ("a.json", "nowhere.json", "a.html", "."):
        done = shell("mark", name)
        assert done.code == 2 and len(done.err.splitlines()) == 1


# ---- the record


def test_each_marking_is_recorded_unless_asked_not_to(shell: Shell) -> None:
    name = save(answer())
    shell("mark", name, "--no-record")
    assert not read_record().entries
    shell("mark", name)
    (entry,) = read_record().entries
    assert (entry.right, entry.asked, entry.title) == (8, 8, SHEET.title)


def test_a_record_that_cannot_be_written_does_not_stop_the_marking(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    shell.patch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    done = shell("mark", save(answer()))
    assert done.code == 0 and "8 of 8 right" in done.out and "record" in done.err


# ---- box by box


def test_an_answer_that_is_not_text_ends_the_asking(shell: Shell) -> None:
    done = shell("mark", save(SHEET), "--ask", stdin=b"\xff\n")
    assert done.code == 2 and "UTF-8" in done.err


def ask(shell: Shell, name: str, *lines: str) -> str:
    return shell("mark", name, "--ask", stdin="".join(f"{line}\n" for line in lines).encode()).out


@pytest.mark.parametrize("name", ["sheet.json", "sheet.md"])
def test_answers_are_asked_and_written_to_the_file(shell: Shell, name: str) -> None:
    save(SHEET, name)
    out = ask(shell, name, *KEY.values())
    assert "8 of 8 right" in out and "softmax(S)" in out
    assert read_sheet(Path(name)).answers == KEY


def test_a_wrong_answer_is_asked_again_and_enter_goes_on(shell: Shell) -> None:
    save(SHEET)
    out = ask(shell, "sheet.json", "9", "1.6487", "9", "", "", "h", "h", "h", "h", "0.3318")
    answers = read_sheet(Path("sheet.json")).answers
    assert {key: text for key, text in answers.items() if text} == {
        "E0": "1.6487", "E1": "9", "P0": "0.3318"
    }  # fmt: skip
    assert "With your numbers: P0 = 1.6487 / 10.6487" in out and "P0 = 0.1548 from your numbers" in out


def test_tries_and_shown_values_are_recorded(shell: Shell) -> None:
    """L is first computed with log₁₀, then shown, then right."""
    save(answer(L=""))
    out = ask(shell, "sheet.json", "0.4791", "h", "h", "h", "1.1032")
    assert "logarithm to base 10" in out and "L = 1.1032" in out
    (entry,) = read_record().entries
    practice = entry.skills[Skill("nll", "fwd")]
    assert practice.verdicts == {"right": 1} and practice.peeks == 1
    assert practice.mistakes == {"logarithm to base 10": 1}


def test_what_is_not_a_number_is_asked_again_and_not_kept(shell: Shell) -> None:
    save(answer(L=""))
    assert "not a number" in ask(shell, "sheet.json", "x", "")
    assert not read_sheet(Path("sheet.json")).answers.get("L")


def test_a_program_is_not_asked(shell: Shell) -> None:
    assert shell("mark", save(SHEET), "--ask", "--json").code == 2


def test_only_open_boxes_are_asked(shell: Shell) -> None:
    save(answer(P1=""))
    out = ask(shell, "sheet.json", "0.6682")
    assert "1 of 1: meaning of P1" in out and "8 of 8 right" in out


def test_what_else_stands_in_a_markdown_sheet_stays(shell: Shell, tmp_path: Path) -> None:
    save(answer_only(E0="1.6487"), "sheet.md")
    file = tmp_path / "sheet.md"
    file.write_text("My notes: e is 2.718.\n" + file.read_text())
    before = file.read_text()
    ask(shell, "sheet.md", "3.3201")
    assert file.read_text() == before.replace("(2) E1 = ____", "(2) E1 = 3.3201")


def test_ctrl_c_keeps_what_was_typed(tmp_path: Path) -> None:
    name = tmp_path / "sheet.json"
    write_sheet(name, SHEET)
    environment = {**os.environ, "PELLUCID_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "pellucid.cli", "mark", str(name), "--ask"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"1.6487\n3.3201\n")
        process.stdin.flush()
        until = time.monotonic() + 60
        while len(read_sheet(name).answers) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert read_sheet(name).answers == {"E0": "1.6487", "E1": "3.3201"}


def test_marking_needs_no_torch(tmp_path: Path) -> None:
    write_sheet(tmp_path / "sheet.json", answer(L="9", E1=""))
    script = (
        "import sys\nsys.argv[1:] = ['mark', 'sheet.json']\n"
        "from pellucid.cli import _run_safely\ncode = _run_safely()\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    environment = {**os.environ, "PELLUCID_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1
