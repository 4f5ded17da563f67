"""A lesson as text for a terminal: whole for a pipe, or by sections with covered numbers."""

from collections.abc import Callable, Iterator

from pellucid.learning.lessons.document import describe_sheet
from pellucid.learning.lessons.ladder import Lesson, find_lesson
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.placeholders import PageNumber, PagePicture
from pellucid.learning.lessons.plain import lay_out
from pellucid.learning.lessons.render import PageStyle, render_section
from pellucid.report.text import write_text as write_figure

LEAST_CHART = 20
"""The narrowest chart in columns, besides its axis."""
HIDDEN = "(an answer is hidden here; --answers shows it)"
HIDDEN_FROM, HIDDEN_TO = "<!-- answer -->", "<!-- /answer -->"
"""The lines around a longer answer that is not shown."""


def make_terminal_style(
    lesson: Lesson,
    width: int,
    shows_answers: bool,
    number: Callable[[PageNumber], str] = lambda number: number.text,
    mask: Callable[..., str] = lambda text, keeps_width=False: text,
) -> PageStyle:
    """Returns how a lesson looks in a terminal of this width; `number` may cover a number, and `mask` the
    numbers in a picture or in an arithmetic."""

    def draw(picture: PagePicture) -> str:
        lines = write_figure(picture.figure, max(LEAST_CHART, min(width, 80) - 16))
        return "\n".join(("```text", *(mask(line, keeps_width=True) for line in lines), "```"))

    return PageStyle(
        lesson_link=lambda other: f"lesson {find_lesson(other).number}",
        picture=draw,
        sheet=lambda reference: describe_sheet(lesson, reference),
        number=number,
        code=mask,
        answer=(lambda text: f"Answer: {text}") if shows_answers else (lambda text: HIDDEN),
        fold=("Answer:\n", "") if shows_answers else (HIDDEN_FROM, HIDDEN_TO),
    )


def write_section(lesson: Lesson, title: str, style: PageStyle, width: int) -> Iterator[str]:
    """Yields the lines of one section, without its heading."""
    page = lesson.page
    text = render_section(page, page.section(title), lesson.references, style)
    yield from lay_out(_hide(text), width)


def _hide(text: str) -> str:
    """Returns the text with a remark in the place of each longer answer that is not shown."""
    shown, is_hidden = list[str](), False
    for line in text.split("\n"):
        if line == HIDDEN_FROM:
            is_hidden = True
            shown.append(HIDDEN)
        elif line == HIDDEN_TO:
            is_hidden = False
        elif not is_hidden:
            shown.append(line)
    return "\n".join(shown)


def write_heading(lesson: Lesson) -> Iterator[str]:
    """Yields the title of a lesson, its goal and what it needs."""
    head = lesson.page.head
    yield f"Lesson {lesson.number}: {lesson.title}"
    yield head.goal
    if head.needs:
        yield f"Needs lesson{'s' * (len(head.needs) > 1)} {', '.join(map(str, head.needs))}."


def write_text(lesson: Lesson, width: int, shows_answers: bool = False) -> Iterator[str]:
    """Yields a whole lesson as plain text; nothing is covered."""
    style = make_terminal_style(lesson, width, shows_answers)
    for line in write_heading(lesson):
        yield from lay_out(line, width)
    for title in SECTIONS:
        yield from ("", title.upper(), "")
        yield from write_section(lesson, title, style, width)
