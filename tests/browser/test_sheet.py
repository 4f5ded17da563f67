"""A worksheet on the screen: answers that are typed into its page are saved as the file that is marked."""

import json
from pathlib import Path

from playwright.sync_api import Browser

from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets
from pellucid.learning.sheets.file import fill_key, read_sheet, write_sheet
from pellucid.learning.sheets.mark import mark_sheet


def test_answers_typed_into_the_page_are_saved_and_marked_right(browser: Browser, tmp_path: Path) -> None:
    [sheet, *_] = lesson_sheets(find_lesson(13))
    write_sheet(tmp_path / "sheet.html", sheet)
    answers = fill_key(sheet).answers
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "sheet.html").as_uri())
    fields = page.locator("input.box")
    assert fields.count() == sum(not box.shown for box in sheet.boxes)
    for i in range(fields.count()):
        fields.nth(i).fill(f" {answers[fields.nth(i).get_attribute('data-key') or '']}")
    with page.expect_download() as download:
        page.get_by_role("button").click()
    download.value.save_as(tmp_path / "saved.json")
    assert not said and "pellucid mark sheet-" in page.locator("output").inner_text()
    saved = read_sheet(tmp_path / "saved.json")
    assert saved.answers == answers and saved.boxes == sheet.boxes and saved.given == sheet.given
    assert all(str(one.grade) == "right" for one in mark_sheet(saved).boxes)


def test_without_a_script_the_page_has_its_boxes(browser: Browser, tmp_path: Path) -> None:
    [sheet, *_] = lesson_sheets(find_lesson(13))
    write_sheet(tmp_path / "sheet.html", sheet)
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto((tmp_path / "sheet.html").as_uri())
    assert page.locator("span.box").count() == sum(not box.shown for box in sheet.boxes)
    assert page.locator("input, button").count() == 0
    assert json.loads(page.locator("#data").text_content() or "")["name"].startswith("sheet-")
