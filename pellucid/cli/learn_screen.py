"""A lesson on the screen, section by section: keys turn the pages, and covered numbers are predicted."""

import contextlib
import re
from collections.abc import Iterator

import typer

from pellucid.base.errors import PellucidError, show
from pellucid.cli.console import Console
from pellucid.learning.lessons.covers import Cover, Covers
from pellucid.learning.lessons.ladder import Lesson
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.placeholders import PageNumber
from pellucid.learning.lessons.terminal import (
    HIDDEN,
    lay_out,
    make_terminal_style,
    write_heading,
    write_section,
)
from pellucid.learning.sheets.history import Skill, record_peeks

WIDEST = 100
"""Columns of a line of text, at most."""
NO_BREAK = "\u00a0"
HELD = 7
"""Lines of the screen below the text, besides what was said last: the keys, and a prediction."""
NEXT, BACK, QUIT = (" ", "n", "\x1b[C", "\x1b[6~"), ("b", "\x1b[D", "\x1b[5~"), ("q", "Q", "\x1b", "\x04")

SECTION_KEYS = [str(i) for i in range(1, len(SECTIONS) + 1)]
NUMBER_KEYS = tuple("0123456789.,+-−<>")
"""Keys that begin a prediction where a number is covered: people type the number at once."""


class LessonScreen:
    """A lesson that is being read: the section, the covers, and what was said last."""

    def __init__(self, lesson: Lesson, shows_answers: bool = False, keeps_record: bool = True) -> None:
        self.lesson, self.keeps_record, self.shows_answers = lesson, keeps_record, shows_answers
        self.console = Console(highlight=False)
        self.covers = None if shows_answers else Covers(lesson)
        self.open_sections = set(SECTIONS) if shows_answers else set[str]()
        self.section = self.screen = 0
        self.message = ""
        self.pending: list[str] = []
        self.hints = 0
        self.tried = set[int]()
        """The covers that were predicted wrongly once: the next try is the last."""
        self.peeked: list[Skill] = []
        self.numbers: dict[int, Cover] = {}
        """The covers of the section by their labels."""
        self.labels: dict[tuple[int, int], int] = {}
        """The number beside each cover of a section, which stays when others are uncovered."""
        self.visible: list[Cover] = []
        """The covers on the screen in their order; the first is the one to predict."""

    def show(self) -> None:
        """Shows the lesson until the reader leaves; what was peeked at is recorded."""
        try:
            while self._show_once():
                pass
        finally:
            self._record()

    def _show_once(self) -> bool:
        """Draws the screen and obeys one key; False where the reader leaves."""
        screens = self._split()
        self.screen = min(self.screen, len(screens) - 1)
        self._draw(screens)
        try:
            key = self._read_key()
        except EOFError:
            return False
        self.message = ""
        if key in QUIT:
            self.console.print()
            return False
        if key in NEXT:
            return self._turn(1, len(screens))
        if key in BACK:
            return self._turn(-1, len(screens))
        if self.visible and key in NUMBER_KEYS:
            self._predict(key)
            return True
        if key in SECTION_KEYS:
            self.section, self.screen, self.hints = SECTION_KEYS.index(key), 0, 0
            return True
        actions = {
            "\r": self._predict,
            "\n": self._predict,
            "p": self._peek,
            "h": self._hint,
            "a": self._answer,
        }
        actions.get(key, self._explain_keys)()
        return True

    def _read_key(self) -> str:
        """Returns the next key; keys that were pressed while the screen was drawn come at once."""
        if not self.pending:
            keys = typer.getchar()
            self.pending = [keys] if keys.startswith("\x1b") else list(keys)
        if not self.pending:  # the terminal is gone
            raise EOFError
        key = self.pending.pop(0)
        if key == "\x03":
            raise KeyboardInterrupt
        return key

    # ---- drawing

    @property
    def width(self) -> int:
        return min(self.console.width, WIDEST)

    def _split(self) -> list[list[str]]:
        """Returns the section as screens of lines, parted at empty lines where there are some."""
        said = len([*lay_out(self.message, self.width)]) if self.message else 0
        lines, room = list(self._lines()), max(self.console.height - HELD - said, 4)
        screens = list[list[str]]()
        while lines:
            end = len(lines)
            if end > room:
                ends = [i for i in range(room // 2, room + 1) if not lines[i].strip()]
                end = ends[-1] if ends else room
            screens.append(lines[:end])
            lines = lines[end:]
            while lines and not lines[0].strip():
                lines.pop(0)
        return screens or [[]]

    def _lines(self) -> Iterator[str]:
        title = SECTIONS[self.section]
        self.numbers = {}
        style = make_terminal_style(
            self.lesson,
            self.width,
            title in self.open_sections,
            *((self._write_number, self.covers.mask) if self.covers else ()),
        )
        if self.section == 0:
            for line in write_heading(self.lesson):
                yield from lay_out(line, self.width)
            yield ""
        yield title.upper()
        yield ""
        yield from write_section(self.lesson, title, style, self.width)

    def _write_number(self, number: PageNumber) -> str:
        cover = self.covers.find(number) if self.covers else None
        if cover is None:
            return number.text
        label = self.labels.setdefault((self.section, id(cover)), 1 + self._count_labels())
        self.numbers[label] = cover
        return f"□{label}"

    def _count_labels(self) -> int:
        return sum(section == self.section for section, _ in self.labels)

    def _draw(self, screens: list[list[str]]) -> None:
        text = "\n".join(screens[self.screen])
        self.visible = [cover for label, cover in self.numbers.items() if _stands_in(f"□{label}", text)]
        self.console.clear()
        self.console.print(text, markup=False, soft_wrap=True)
        self.console.print()
        if self.message:
            for line in lay_out(self.message, self.width):
                self.console.print(line, markup=False, style="bold", soft_wrap=True)
        place = f"{SECTIONS[self.section]}, {self.section + 1} of {len(SECTIONS)}"
        if len(screens) > 1:
            place += f" (screen {self.screen + 1} of {len(screens)})"
        for line in lay_out(f"{place}   {self._format_keys(text)}", self.width):
            line = line.replace(NO_BREAK, " ")
            self.console.print(line, markup=False, style="dim", end="\n", soft_wrap=True)

    def _format_keys(self, text: str) -> str:
        keys = ["Space next", "b back"]
        if self.visible:
            label = next(label for label, cover in self.numbers.items() if cover is self.visible[0])
            keys += [f"Enter predict □{label}", "p peek", "h hint"]
        if HIDDEN in " ".join(text.split()):
            keys.append("a answers")
        # a key is not parted from what it does where the line wraps
        return " · ".join(key.replace(" ", NO_BREAK) for key in [*keys, "q quit"])

    # ---- keys

    def _turn(self, by: int, screens: int) -> bool:
        self.hints = 0
        if 0 <= self.screen + by < screens:
            self.screen += by
        elif 0 <= self.section + by < len(SECTIONS):
            self.section += by
            self.screen = 0 if by > 0 else 10**6
        elif by > 0:
            self.message = (
                f"The lesson ends here. Its worksheet: pellucid sheet lesson-{self.lesson.number} -o sheet.md"
            )
        return True

    def _predict(self, begun: str = "") -> None:
        """Reads a prediction of the first covered number, of which `begun` was typed already."""
        if not self.visible:
            self.message = "No number is covered here."
            return
        cover = self.visible[0]
        with contextlib.suppress(EOFError):
            forms = "a number, its sign (+ or -), or > or < a number; Enter alone goes back"
            for line in lay_out(f"{cover.name}: {forms}", self.width):
                self.console.print(line, markup=False, soft_wrap=True)
            text = self._read_line(begun)
            if not text.strip():
                return
            judged = cover.judge(text, is_last=id(cover) in self.tried)
            if judged is None:
                forms = "write a number such as 0.25, +, -, > 0.5 or < 0.5"
                self.message = f"{show(text.strip())} is not a prediction: {forms}."
                return
            self.message = judged.text
            if judged.is_right or id(cover) in self.tried:
                self._uncover(cover)
            self.tried.add(id(cover))

    def _read_line(self, begun: str) -> str:
        """Returns a line, with what was typed of it while the screen was drawn."""
        typed, end, rest = re.sub("\r", "\n", begun + "".join(self.pending)).partition("\n")
        self.pending = list(rest)
        return typed if end else typed + input(f"> {typed}")

    def _peek(self) -> None:
        if not self.visible:
            self.message = "No number is covered here."
            return
        cover = self.visible[0]
        self.message = f"{cover.box.symbol} = {cover.value}"
        self.peeked.append(cover.skill)
        self._uncover(cover)

    def _hint(self) -> None:
        if not self.visible:
            self.message = "No number is covered here."
            return
        self.hints += 1
        self.message = self.visible[0].hint(self.hints)

    def _answer(self) -> None:
        self.open_sections ^= {SECTIONS[self.section]}

    def _explain_keys(self) -> None:
        self.message = (
            f"Keys: Space next, b back, a number or Enter predict, p peek, h hint, a answers, q quit; where "
            f"nothing is covered, 1 to {len(SECTIONS)} go to a section."
        )

    def _uncover(self, cover: Cover) -> None:
        assert self.covers is not None
        self.hints = 0
        self.covers.uncover(cover)

    def _record(self) -> None:
        if self.keeps_record and self.peeked:
            try:
                record_peeks(self.lesson.number, self.lesson.title, self.peeked)
            except PellucidError as error:
                self.console.print(f"The record was not written: {error}", markup=False)


def _stands_in(label: str, text: str) -> bool:
    """Tests whether a label stands in a text: □1 does not stand in □12."""
    return bool(re.search(rf"{label}(?!\d)", text))
