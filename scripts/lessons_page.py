"""The lessons as pages with their pictures, and the list of them."""

from collections.abc import Iterator
from pathlib import Path

from pellucid.learning.lessons.document import write_document, write_pictures
from pellucid.learning.lessons.ladder import lessons


def list_page() -> Iterator[str]:
    yield "# Lessons\n"
    yield (
        "Each lesson is a page, a program and worksheets; every number on the page comes from a run of the "
        "program. `pellucid learn` lists them, `pellucid learn NUMBER` reads one in the terminal, "
        "`pellucid sheet lesson-NUMBER` writes its worksheet and `pellucid mark` marks it.\n"
    )
    yield "| lesson | goal | needs |\n|---|---|---|"
    for lesson in lessons().values():
        needs = ", ".join(map(str, lesson.page.head.needs))
        yield f"| [{lesson.number} {lesson.title}]({lesson.name}.md) | {lesson.page.head.goal} | {needs} |"


def lesson_files(folder: Path, made: str) -> dict[Path, str]:
    """Returns the content of every file of the folder, by its path."""
    files = {"README.md": made + "\n".join(list_page()) + "\n"}
    for lesson in lessons().values():
        files[f"{lesson.name}.md"] = made + "\n".join(write_document(lesson))
        files |= write_pictures(lesson)
    return {folder / name: text for name, text in files.items()}
