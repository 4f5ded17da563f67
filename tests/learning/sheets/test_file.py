"""A sheet file: what is written is read again, and a file from elsewhere is a sheet or one FileError."""

import copy
import dataclasses
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.learning.sheets.blanks import write_data_line
from pellucid.learning.sheets.file import (
    fill_key,
    format_file,
    format_sheet,
    from_json,
    read_sheet,
    to_json,
    write_sheet,
)
from pellucid.learning.sheets.sheet import Sheet
from tests.explanation.test_trace_fuzz import mutated
from tests.formats.mutations import damaged_json
from tests.learning.sheets.small_sheets import make_softmax_sheet

SHEET = make_softmax_sheet()


@pytest.fixture
def data() -> dict[str, Any]:
    return copy.deepcopy(to_json(SHEET))


def refuse(data: Any) -> str:
    with pytest.raises(FileError) as error:
        from_json(json.loads(json.dumps(data)))
    return str(error.value)


@pytest.mark.parametrize("ending", [".json", ".md"])
def test_a_sheet_is_read_as_it_was_written(ending: str, tmp_path: Path) -> None:
    write_sheet(tmp_path / f"a{ending}", SHEET)
    assert read_sheet(tmp_path / f"a{ending}") == SHEET


@pytest.mark.parametrize("ending", [".json", ".md"])
def test_answers_are_kept(ending: str, tmp_path: Path) -> None:
    answered = dataclasses.replace(SHEET, answers={"pattern~0": "1,65", "nll": "ln 2", "z[t=1,c=0]": "1/3"})
    write_sheet(tmp_path / f"a{ending}", answered)
    assert read_sheet(tmp_path / f"a{ending}") == answered


@pytest.mark.parametrize("ending", [".json", ".md"])
def test_a_key_is_the_sheet_with_every_answer(ending: str, tmp_path: Path) -> None:
    write_sheet(tmp_path / f"a{ending}", SHEET, key=True)
    answers = read_sheet(tmp_path / f"a{ending}").answers
    assert answers == fill_key(SHEET).answers
    assert answers["pattern~0"] == "1.6487" and len(answers) == len(SHEET.boxes)


def test_a_sheet_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.learning.sheets.file.MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="--boxes"):
        write_sheet(tmp_path / "sheet.md", make_softmax_sheet())
    write_sheet(tmp_path / "sheet.html", make_softmax_sheet())  # for paper
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.html"]


def test_a_sheet_file_holds_no_answer() -> None:
    assert "1.6487" not in format_file(SHEET, ".md") + format_file(SHEET, ".json")


def test_a_markdown_sheet_is_its_page_and_one_line_of_data() -> None:
    text = format_file(SHEET, ".md")
    page, line = text[: text.index("<!-- pellucid-sheet")], text[text.index("<!-- pellucid-sheet") :]
    assert line.count("\n") == 1 and line.endswith(" -->\n")
    assert len(line) < len(format_sheet(SHEET)) / 3 and len(page) > 500


def test_a_damaged_line_of_data_is_one_error_that_says_what_to_do(tmp_path: Path) -> None:
    text = format_file(SHEET, ".md")
    (tmp_path / "a.md").write_text(text[:-40] + text[-39:], "utf-8")
    with pytest.raises(FileError, match=r"a\.md is damaged: .* checksum: take a copy of the sheet"):
        read_sheet(tmp_path / "a.md")


def test_a_comment_cannot_be_closed_by_a_text_in_it(tmp_path: Path) -> None:
    sheet = dataclasses.replace(SHEET, source={"prompts": ["--> <!-- pellucid-sheet\n{}"]})
    write_sheet(tmp_path / "a.md", sheet)
    assert read_sheet(tmp_path / "a.md") == sheet


def test_only_a_sheet_is_replaced_and_only_with_force(tmp_path: Path) -> None:
    for ending in (".json", ".md", ".html"):
        write_sheet(tmp_path / f"a{ending}", SHEET)
        with pytest.raises(FileError, match="force"):
            write_sheet(tmp_path / f"a{ending}", SHEET)
        write_sheet(tmp_path / f"a{ending}", SHEET, force=True)
        (tmp_path / f"notes{ending}").write_text("[]")
        with pytest.raises(FileError, match="is not a sheet"):
            write_sheet(tmp_path / f"notes{ending}", SHEET, force=True)
        assert (tmp_path / f"notes{ending}").read_text() == "[]"


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.html, \.md or \.json"):
        write_sheet(tmp_path / "a.pdf", SHEET)
    with pytest.raises(FileError, match="saves its answers"):
        read_sheet(tmp_path / "a.html")


def test_a_markdown_file_without_its_comment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A sheet\n\n(1) P[0] = 3\n")
    with pytest.raises(FileError, match="comment"):
        read_sheet(tmp_path / "a.md")


# ---- a sheet that is not a program over its printed numbers

DEEP: Any = "scores[t=1,s=0]"
for _ in range(50):
    DEEP = ["negative", DEEP]


@pytest.mark.parametrize(
    ("rule", "fact"),
    [
        (["pattern~0"], "function"),
        (["system", 1], "system"),
        (["rest", "scores[t=1,s=0]"], "rest"),
        ({"rest": "scores[t=1,s=0]"}, "rest"),
        (["+", {"rest": "scores[t=1,s=0]", "x": 1}], "rest"),
        (["divide", 1], "1 argument"),
        (["choose", 1, 2, 3, 4], "4 arguments"),
        (["+", "elsewhere[t=0]"], "elsewhere"),
        (["+", "nll"], "before it is computed"),
        (["+", "pattern~1"], "before it is computed"),
        (DEEP, "50"),
        (["log", -1], "no value"),
        (None, "rule"),
        ([], "rule"),
        (True, "rule"),
        ([["+"], 1], "rule"),
        (["+", *["scores[t=1,s=0]"] * 501], "501 arguments"),
        (["+", *[["+", *["scores[t=1,s=0]"] * 500]] * 400], "200,000"),
        (10**30, None),
    ],
)
def test_a_rule_is_refused_by_the_name_of_its_box(data: dict[str, Any], rule: Any, fact: str | None) -> None:
    data["boxes"][1]["rule"] = rule
    if fact is None:
        assert from_json(data).key["pattern~1"] == 1e30
    else:
        message = refuse(data)
        assert "'pattern~1'" in message and fact in message


@pytest.mark.parametrize(
    ("place", "value", "fact"),
    [
        (("version",), 2, "2"),
        (("version",), True, "True"),
        (("format",), "pellucid-trace", "pellucid-sheet"),
        (("author",), "me", "author"),
        (("level",), 4, "4"),
        (("lesson",), "15", "lesson"),
        (("given", "v[s=0,c=0]", "text"), "nan", "v[s=0,c=0]"),
        (("given", "v[s=0,c=0]", "text"), "1e999", "v[s=0,c=0]"),
        (("given", "v[s=0,c=0]", "text"), "1_0", "v[s=0,c=0]"),
        (("given", "v[s=0,c=0]", "text"), "٣", "v[s=0,c=0]"),
        (("given", "v[s=0,c=0]", "text"), 2, "v[s=0,c=0]"),
        (("given", "pattern~1"), {"text": "1", "exact": True, "symbol": "x"}, "pattern~1"),
        (("boxes", 1, "key"), "pattern~0", "pattern~0"),
        (("boxes", 1, "key"), 7, "box 2"),
        (("boxes", 1, "form"), "guess", "pattern~1"),
        (("boxes", 1, "decimals"), 400, "pattern~1"),
        (("boxes", 1, "decimals"), 2.5, "pattern~1"),
        (("boxes", 1, "answer"), "1", "answer"),
        (("boxes", 3, "mistakes", "lost a term"), ["+", "elsewhere"], "lost a term"),
        (("boxes", 3, "mistakes", "itself"), ["+", "pattern[t=1,s=0]"], "itself"),
        (("boxes", 0, "mistakes", "a later box"), "pattern~1", "a later box"),
        (("boxes", 1, "shown"), "1e999", "pattern~1"),
        (("seed",), -1, "seed"),
        (("lesson",), -1, "lesson"),
        (("checks", 0, "keys"), ["elsewhere"], "elsewhere"),
        (("checks", 0, "sum"), float("inf"), "inf"),
        (("answers", "elsewhere"), "3", "elsewhere"),
        (("answers", "nll"), 3, "nll"),
        (("answers", "nll"), "3" * 1000, "nll"),
        (("labels",), {"t": "AB"}, "labels.t"),
    ],
)
def test_a_value_is_refused_by_its_name(
    data: dict[str, Any], place: tuple[Any, ...], value: Any, fact: str
) -> None:
    *path, last = place
    holder: Any = data
    for key in path:
        holder = holder[key]
    holder[last] = value
    assert fact in refuse(data)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "",
        "null",
        '{"format": "pellucid-sheet", "version": 1, "title": "a", "title": "b"}',
        format_sheet(SHEET).replace("0.012", "9" * 5000),
        format_sheet(SHEET).replace('"seed": 0', '"seed": NaN'),
        format_sheet(SHEET).replace('"seed": 0', '"seed": -Infinity'),
        format_sheet(SHEET).replace('"seed": 0', '"seed": 1e999'),
        format_sheet(SHEET).replace('"seed": 0', f'"seed": {"9" * 5000}'),
        format_sheet(SHEET).replace("by hand", "\\ud800"),
        format_sheet(SHEET) + " " * 4_000_000,
    ],
    ids=range(12),
)
def test_a_text_that_json_would_accept_or_crash_on_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, "utf-8")
    with pytest.raises(FileError, match=r"a\.json"):
        read_sheet(file)


def test_more_than_5000_boxes_are_refused(data: dict[str, Any]) -> None:
    data["boxes"] = [data["boxes"][0] | {"key": f"pattern~{i}"} for i in range(5001)]
    assert "5,001" in refuse(data)


def is_sheet(file: Path) -> bool:
    """Whether the file can be read, computed and written; anything but a sheet or a FileError is raised."""
    try:
        sheet = read_sheet(file)
    except FileError:
        return False
    for ending in (".json", ".md", ".html"):
        format_file(sheet, ending, key=True).encode("utf-8")
    return True


def damage(sheet: Sheet, ending: str, whole: bytes, draw: random.Random, rng: np.random.Generator) -> bytes:
    """Returns a damaged copy of a sheet file: a value replaced by another, or bytes."""
    if draw.random() < 0.5:
        changed = json.dumps(mutated(to_json(sheet), draw)).encode()
    else:
        changed = damaged_json(format_sheet(sheet).encode(), rng)
    if ending == ".json":
        return changed
    start = whole.index(b"<!-- pellucid-sheet")
    if draw.random() < 0.5:  # the data is damaged, and its line is whole
        return whole[:start] + write_data_line(changed.decode("utf-8", "replace")).encode()
    place = draw.randrange(start + 30, len(whole) - 5)
    return whole[:place] + bytes([draw.randrange(256)]) + whole[place + draw.randrange(3) :]


@pytest.mark.parametrize("ending", [".json", ".md"])
@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.torture)])
def test_a_damaged_sheet_is_read_or_refused(count: int, ending: str, tmp_path: Path) -> None:
    draw, rng, file = random.Random(0), np.random.default_rng(0), tmp_path / f"a{ending}"
    sheet = dataclasses.replace(SHEET, answers={"nll": "0.4"})
    whole = format_file(sheet, ending).encode()
    refused = 0
    for _ in range(count):
        file.write_bytes(damage(sheet, ending, whole, draw, rng))
        start = time.perf_counter()
        refused += not is_sheet(file)
        assert time.perf_counter() - start < 2
    assert count / 4 < refused < count
