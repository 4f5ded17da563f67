"""A lesson's page: a TOML head between `+++` lines, then Markdown that refers to numbers and types none.

The head:

    number = 15                     the place on the ladder
    part = "c"                      the letter of its folder
    title = "…"                     what the lesson is about, without its number
    goal = "…"                      what the reader can do afterwards, one sentence
    needs = [14]                    lessons to have done before; they must exist
    mistakes = ["no mask"]          names of `verification.mistakes` that a sheet of this lesson must show
    errata = ["1.6 #3"]             items of the errata behind "What could go wrong"
    source = ["U Ex. 3"]            sections of the texts
    code = ["softmax", "einsum"]    operations, which the page links to

    [[sheet]]                       one or several
    name = "forward"                needed where there are several
    run = "without"                 a run of the program; by default the first
    focus = ["probs[t=1]"]          the addresses that are asked; an axis left out is whole
    stop = ["embedded"]             patterns of names that are printed and not asked
    boxes = 40                      further settings of `make_sheet`: boxes, top, digits

    [transfer]                      the same step in a pretrained model, level 3
    model = "smollm2"
    prompt = "The cat sat on the"
    target = " mat"                 where gradients or updates are asked; update, lr, only likewise
    focus = ["blocks.5.attn.pattern[h=3,t=4]"]

Then the eight sections of `SECTIONS`, each under its `## Heading`, 600 to 1,500 words in all. Numbers are
written as references, which `placeholders.py` lists.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.base.errors import ConfigError, FileError, did_you_mean
from pellucid.base.files import read_text
from pellucid.base.schema import fields_of, read
from pellucid.base.toml import parse_toml

SECTIONS = (
    "Intuition",
    "Formula",
    "Numbers",
    "Worked example",
    "Check yourself",
    "What could go wrong",
    "Exercises",
    "Recap",
)
WORDS = (600, 1500)
"""The least and the largest number of words of a page."""
LARGEST = 200_000
"""Bytes of a page, at most."""

_HEAD = re.compile(r"\+\+\+\n(?P<head>.*?)^\+\+\+\n(?P<body>.*)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^( *)```(\w*)")


@dataclass(frozen=True)
class SheetHead:
    """One worksheet of a lesson: the cells of a run that it asks."""

    focus: tuple[str, ...]
    name: str = ""
    run: str = ""
    stop: tuple[str, ...] = ()
    boxes: int | None = None
    top: int | None = None
    digits: int | None = None


@dataclass(frozen=True)
class TransferHead:
    """The worksheet of level 3: the same step in a pretrained model."""

    model: str
    prompt: str
    focus: tuple[str, ...]
    target: str | None = None
    update: str | None = None
    lr: float | None = None
    only: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    boxes: int | None = None
    top: int | None = None
    digits: int | None = None


@dataclass(frozen=True)
class Head:
    """What a page says about itself; the module's docstring has the meaning of each key."""

    number: int
    part: str
    title: str
    goal: str
    sheet: tuple[SheetHead, ...]
    needs: tuple[int, ...] = ()
    mistakes: tuple[str, ...] = ()
    errata: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    transfer: TransferHead | None = None


@dataclass(frozen=True)
class PageSection:
    """A heading with the Markdown below it; `line` is that of the heading in the file."""

    title: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page as its writer typed it, the references still open."""

    path: Path
    head: Head
    sections: tuple[PageSection, ...]

    @property
    def words(self) -> int:
        """The number of words of prose, a reference being one; blocks of code do not count."""
        texts = (REFERENCE.sub("x", _blank(_SH, part.text)) for part in self.sections)
        return sum(len(re.findall(r"\w[\w’'-]*", text)) for text in texts)

    def section(self, title: str) -> PageSection:
        """Returns the section under a heading of `SECTIONS`."""
        return next(part for part in self.sections if part.title == title)


def read_page(path: Path) -> Page:
    """Returns the page of a file; raises a FileError where its head or its sections are not as they must
    be."""
    return parse_page(path, read_text(path, LARGEST))


def parse_page(path: Path, text: str) -> Page:
    """Returns the page that this text is; `path` is named in messages."""
    found = _HEAD.fullmatch(text)
    if not found:
        raise FileError(f"{path} is not a lesson: it does not begin with a head between two lines +++.")
    table = parse_toml(found["head"], f"{path}: the head")
    head = _read_head(path, table)
    first = text[: found.start("body")].count("\n") + 1
    return Page(path, head, tuple(_split_sections(path, found["body"], first)))


def _read_head(path: Path, table: dict[str, Any]) -> Head:
    try:
        sheets = table.get("sheet", [])
        if isinstance(sheets, dict):
            sheets = [sheets]
        head = read(fields_of(Head), table | {"sheet": sheets}, "the head", Head, error=ConfigError)
    except ConfigError as error:
        raise FileError(f"{path}: {error}") from None
    names = [sheet.name for sheet in head.sheet]
    if not names or len(set(names)) < len(names):
        raise FileError(f"{path}: a lesson has at least one sheet, and several have different names.")
    return head


def _split_sections(path: Path, body: str, first: int) -> Iterator[PageSection]:
    titles, starts = [], []
    lines = body.split("\n")
    for number, is_code, line in _walk_lines(body):
        if line.startswith("## ") and not is_code:
            titles.append(line.removeprefix("## ").strip())
            starts.append(number)
        elif line.strip() and not titles:
            raise FileError(f"{path}:{first + number}: text before the first heading, ## {SECTIONS[0]}.")
    for title, number in zip(titles, starts, strict=True):
        if title not in SECTIONS:
            hint = did_you_mean(title, SECTIONS)
            raise FileError(f"{path}:{first + number}: a page has no section {title!r}.{hint}")
    if tuple(titles) != SECTIONS:
        missing = [title for title in SECTIONS if title not in titles]
        why = f"missing: {', '.join(missing)}" if missing else "they stand in another order, or twice"
        raise FileError(f"{path}: a page has the sections {', '.join(SECTIONS)}; {why}.")
    for title, start, end in zip(titles, starts, [*starts[1:], len(lines)], strict=True):
        yield PageSection(title, "\n".join(lines[start + 1 : end]).rstrip("\n") + "\n", first + start)


def _walk_lines(text: str) -> Iterator[tuple[int, bool, str]]:
    """Yields each line with its number from 0, and whether it stands in a block of code."""
    inside = False
    for number, line in enumerate(text.split("\n")):
        is_fence = bool(_FENCE.match(line))
        yield number, inside or is_fence, line
        inside ^= is_fence


# ---- numbers that were typed

REFERENCE = re.compile(r"\{\{(.*?)\}\}")
LESSON_LINK = re.compile(r"\[\[(\d+)\]\]")
PROPER_NAMES = (
    r"GPT-\d", r"SmolLM2(-135M)?", r"smollm2(-135m)?", r"gpt2(-\w+)?", r"UTF-8", r"Llama-? ?\d(\.\d)?", r"A4",
    r"[Ll]esson-\d+", r"[Ee]xample-\d", r"[Ee]xamples? \d( (and|to) \d)?", r"float(16|32|64)", r"L2",
)  # fmt: skip
"""Names that have a digit in them, which is not a number of a run."""
_SH = re.compile(r"^ *```sh\n.*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|<https?:[^>]*>")
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_SMALL = re.compile(r"(?<=\[)[012](,[012])+(?=\])|(?<![\d.,])[012](?![\d]|[.,]\d)")
_NUMBER = re.compile(r"[0-9¼½¾⅐-⅞][\d.,]*")


def find_literals(text: str) -> list[tuple[int, str]]:
    """Returns the numbers that were typed, each with its line from 1: digits and fractions that no reference
    computed.

    Not counted are references, blocks of `sh`, the targets of links, lesson numbers and proper names; inside
    code the whole numbers 0, 1 and 2 may stand, also as indices.

    >>> find_literals("GPT-2 has {{size pattern t}} tokens,\\nwith `max(0, x)`, at a rate of ½ or 0.1.")
    [(2, '½'), (2, '0.1')]
    """
    names = re.compile(rf"(?<!\w)({'|'.join(PROPER_NAMES)})(?!\w)")
    for pattern in (_SH, REFERENCE, LESSON_LINK, _LINK_TARGET, names):
        text = _blank(pattern, text)
    text = _CODE.sub(lambda code: _blank(_SMALL, code[0]), text)
    return [
        (text.count("\n", 0, found.start()) + 1, found[0].rstrip(".,")) for found in _NUMBER.finditer(text)
    ]


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """Returns the text with what the pattern finds replaced by spaces; lines stay where they are."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
