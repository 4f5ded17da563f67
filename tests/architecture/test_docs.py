"""What the docs say is what the code generates."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(path for path in ROOT.rglob("*.md") if ".venv" not in path.parts)


def test_generated_pages_are_up_to_date() -> None:
    """Above 10 s: every command and every example of every page runs."""
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_names_its_two_commands_and_fits_two_screens() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    assert len(prose.splitlines()) < 60


def test_the_marked_sheet_of_the_readme_is_the_one_that_the_command_above_it_makes() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (asked,) = re.findall(r"^pellucid sheet (lesson-\d+) -o sheet\.md", readme, re.MULTILINE)
    sheet = lesson_sheets(find_lesson(asked))[0]
    example = readme.partition("<!-- mark example -->")[2].partition("<!-- /mark example -->")[0]
    assert f"$ pellucid mark sheet.md\n{sheet.title}\n" in example
    for number, symbol in re.findall(r"^  \((\d+)\) (.+?)  ", example, re.MULTILINE):
        assert sheet.boxes[int(number) - 1].symbol == symbol
    assert f" of {len(sheet.boxes)} right" in example


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_picture_of_a_choice_is_small_whole_and_on_the_page() -> None:
    page = (ROOT / "docs" / "choices.md").read_text("utf-8")
    for picture in (ROOT / "docs" / "choices").iterdir():
        text = picture.read_text("utf-8")
        assert len(text.encode()) < 60_000, picture.name
        assert not re.search(r"\b(nan|inf)\b", text), picture.name
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert f"](choices/{picture.name})" in page, f"{picture.name} is not on the page; remove it"


def test_every_file_of_the_lessons_belongs_to_one() -> None:
    folder = ROOT / "docs" / "lessons"
    sources = {file.name for file in (ROOT / "pellucid" / "learning/lessons").glob("?_*/l*.md")}
    assert {page.name for page in folder.glob("*.md")} == {*sources, "README.md"}
    linked = "".join(page.read_text("utf-8") for page in folder.glob("*.md"))
    for picture in folder.glob("*.svg"):
        assert f"]({picture.name})" in linked, f"{picture.name} is not on a page; remove it"


def test_every_skipped_test_is_listed_with_its_reason() -> None:
    """No test is skipped today; a skip needs a line in tests/SKIPPED.md."""
    marks = re.compile(r"pytest\.(?:mark\.)?(?:skip|xfail|importorskip)")
    listed = ROOT / "tests" / "SKIPPED.md"
    reasons = listed.read_text("utf-8") if listed.exists() else ""
    for file in (ROOT / "tests").rglob("*.py"):
        if file != Path(__file__) and marks.search(file.read_text("utf-8")):
            assert file.name in reasons, f"{file.name} skips without a reason in tests/SKIPPED.md"


def test_the_page_of_messages_shows_what_an_error_says() -> None:
    spec = importlib.util.spec_from_file_location("messages_page", ROOT / "scripts" / "messages_page.py")
    assert spec and spec.loader
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    source = """
def check(path, n):
    why = f"it has {n:,} bytes"
    raise FileError(f"{path.name} is damaged: {why}" + (", not 4." if n else "."))
def find(name):
    raise UsageError(unknown("a color", name, COLORS))
async def open(name):
    raise FileError(not_one_of("color", name, COLORS))
"""
    assert list(page.messages(ast.parse(source))) == [
        ("FileError", "{name} is damaged: it has {n} bytes[, not 4. | .]"),
        ("UsageError", "a color must be one of {names}; got {name}.{hint}"),
        ("FileError", "color must be one of {names}; got {name}."),
    ]
