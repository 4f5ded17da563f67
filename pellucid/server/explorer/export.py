"""A trace as one HTML file: the page, and the answers that it will ask for, chosen until a size is reached.

First what every screen begins with and the pictures of all heads, then from each of the likeliest next tokens
the whole path along the largest operand to the embeddings, then the numbers of each head, then breadth first
every number that can be clicked. A question that the file does not answer is shown as such, with the command
that does.
"""

import contextlib
import hashlib
import json
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pellucid
from pellucid.base.arguments import check_int
from pellucid.base.errors import PellucidError, UsageError, show
from pellucid.base.files import check_output, make_page_kind, new_file
from pellucid.base.formatting import format_bytes
from pellucid.explanation.address import parse
from pellucid.explanation.example_command import propose_command
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import trace
from pellucid.model import Model
from pellucid.server.explorer.bundle import encode_json, make_document, make_question_string
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest
from pellucid.server.explorer.question import ask
from pellucid.server.explorer.session import Session
from pellucid.text.prompts import Prompt

MARK = b'<meta name="generator" content="pellucid explore">'
PAGE = make_page_kind("an exported page", MARK)
LARGEST = 5_000_000
"""The default size of a page in bytes."""
LARGEST_FRAME = 1_000_000
"""The bytes of a page that a notebook holds, where they are escaped: one of more is slow to open."""
LIKELIEST = 8
"""The next tokens whose whole path to the embeddings is in the page."""
ATTENTION_ROWS = 16
"""Rows of a window on the attention screen."""
LAST = {"leaf": 0, "param": 1}
"""Operands that are not computed: a path ends with them, with a parameter rather than an input."""
LONGEST_PATH = 2000
"""Steps of one path; a path follows the program backwards, so it ends by itself."""

_BLOCK = re.compile(r"(?:d\.)?blocks\.\d+(?=\.)")

Progress = Callable[[int, int], None]


def write_page(
    source: str,
    path: Path,
    request: RunRequest | None = None,
    *,
    weights: str | None = None,
    at: str | None = None,
    size: int = LARGEST,
    force: bool = False,
    progress: Progress = lambda done, whole: None,
) -> Path:
    """Writes the page of a model on a prompt, or of a trace file; an existing page is replaced with `force`.

    `progress` is called with the bytes that the page holds and those that it may have."""
    check_output(path, PAGE, force)
    session = Session.open(source, weights=weights)
    if request is not None:
        session.run(request)
    elif session.model is not None:
        example = propose_command("explore", source)
        raise UsageError(f"an exported page needs a prompt, for example: {example} --export {path}")
    text = write_html(session, session.get_trace(None), at=at, size=size, progress=progress)
    with new_file(path, PAGE, force) as file:
        file.write(text.encode())
    return path


def write_html(
    session: Session,
    held: HeldTrace,
    *,
    at: str | None = None,
    size: int = LARGEST,
    progress: Progress = lambda done, whole: None,
) -> str:
    """Returns the HTML of a trace's page, of about `size` bytes at most."""
    page = _Answers(session, held, size - len(make_document({}, "").encode()), progress)
    if at is not None:
        parse(held.trace, at)  # a wrong address is refused before the work
    page.add_frame()
    title = f"{page.model}: every number opens"
    page.limit = size - len(make_document({}, title).encode())
    tokens = page.likeliest()
    if page.used > page.limit:
        least = math.ceil((size - page.limit + page.used) / 1000)
        raise UsageError(
            f"the screens of this page alone take {least:,} kB, which is more than {format_bytes(size)}. "
            "Give a larger size."
        )
    for start in (*([at] if at else []), *tokens):
        page.add_path(start)
    page.add_heads()
    page.add_map()
    page.add_reachable((*([at] if at else []), *tokens))
    return make_document(page.answers, title)


def explore(
    model: "Model | Trace | str | os.PathLike[str]",
    prompt: "Prompt | Sequence[Prompt] | None" = None,
    *,
    size: int | None = None,
    **run: Any,
) -> "TracePage":
    """Returns the page on which every number of a run opens, of about `size` bytes at most.

    The run is a trace, or that of a model on a prompt; `run` is then as for `trace`.

    A notebook shows it in a frame, and keeps it: a page above 1 MB is named there instead, for `save`.
    Without a size it is at most 1 MB, or 5 MB where its screens alone take more than that.

    >>> import pellucid
    >>> page = pellucid.explore("abcd", "A B")
    >>> page.html.startswith("<!doctype html>")
    True
    """
    if isinstance(model, Trace):
        if prompt is not None or run:
            raise UsageError("a trace holds its own run: omit the prompt and its settings.")
        held = model
    elif not isinstance(model, Model | str | os.PathLike):
        raise UsageError(f"a page is of a trace or a model, not of {show(model)}.")
    elif prompt is None:
        raise UsageError(f"a page needs a prompt, for example: {propose_command('explore', model)}")
    else:
        held = trace(model, prompt, **run)
    most = LARGEST if size is None else check_int("size", size, least=0)
    session, name = Session(trace=held), str(held.run.get("model", ""))
    if size is None:
        with contextlib.suppress(UsageError):  # the screens alone may take more
            return TracePage(write_html(session, session.get_trace(None), size=LARGEST_FRAME), name)
    return TracePage(write_html(session, session.get_trace(None), size=most), name)


@dataclass(frozen=True, repr=False)
class TracePage:
    """One HTML file in which every number opens: a notebook shows it, `save` writes it."""

    html: str
    model: str = ""

    def __repr__(self) -> str:
        return f"<TracePage of {self.model}: {format_bytes(len(self.html.encode()))}>"

    def _repr_html_(self) -> str:
        from pellucid.base.notebook import escape_html, line

        if len(self.html.encode()) > LARGEST_FRAME:
            return line(f'{self!r}: `page.save("trace.html")` writes it, for a browser')
        # a frame of its own origin: the page can neither read nor change the notebook
        look = 'sandbox="allow-scripts" width="100%" height="720" style="border:0"'
        return f'<iframe title="{escape_html(repr(self))}" {look} srcdoc="{_escape(self.html)}"></iframe>'

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Writes the page; `force` replaces an existing one."""
        with new_file(Path(path), PAGE, force) as file:
            file.write(self.html.encode())
        return Path(path)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


@dataclass
class _Answers:
    """The answers of a page under their question strings, within a size."""

    session: Session
    held: HeldTrace
    limit: int
    progress: Progress
    answers: dict[str, str] = field(default_factory=dict)
    used: int = 0
    model: str = ""

    def ask(self, question: str, **parameters: Any) -> dict[str, Any]:
        """Returns an answer, which is in the page from now on."""
        return self._ask(self.answers, question, parameters)

    def _ask(
        self, to: dict[str, str], question: str, parameters: Mapping[str, Any], **changes: Any
    ) -> dict[str, Any]:
        given = parameters if question == "session" else {**parameters, "trace": self.held.id}
        key = make_question_string(question, given)
        found: dict[str, Any]
        if key in self.answers:
            found = json.loads(self.answers[key])
            return found
        found = ask(self.session, question, given) | changes
        to[key] = encode_json(found)
        if to is self.answers:
            self._add((key, to[key]))
        return found

    def _add(self, entry: tuple[str, str]) -> None:
        self.answers[entry[0]] = entry[1]
        self.used += _measure(entry)
        self.progress(min(self.used, self.limit), self.limit)

    def add_frame(self) -> None:
        """Adds what the screens begin with: the session, the names, the next tokens, norms of each branch."""
        about = {
            "version": pellucid.__version__,
            "checksum": compute_checksum(self.held.trace),
        }
        found = self._ask(self.answers, "session", {}, is_exported=True, busy=None, about=about)
        self.model = str(found["model"])
        self.ask("names")
        if "probs" in self.held.trace.tape:
            self.ask("next")
            for t in range(self.held.trace.value("probs").shape[1] - 1):
                self.ask("next", t=t)
        for question in ("targets", "gradients", "heads"):
            with contextlib.suppress(
                PellucidError
            ):  # of a run without a target, or without attention patterns
                self.ask(question)

    def add_heads(self) -> None:
        """Adds the pattern and the scores of each head, while they fit."""
        try:
            found = self._ask({}, "heads", {})
        except PellucidError:
            return  # without attention patterns there is no such screen
        for pattern in found["patterns"]:
            for head in range(found["heads"]):
                new: dict[str, str] = {}
                with contextlib.suppress(PellucidError):  # a head without a pattern [b, h, t, s]
                    chosen = self._ask(new, "attention", {"layer": int(pattern.split(".")[1]), "head": head})
                    for name in (pattern, *chosen["before"]):
                        self._ask(new, "value", {"at": f"{name}[h={head}]", "rows": ATTENTION_ROWS})
                self._keep(new)

    def add_map(self) -> None:
        """Adds the norms of each branch of the map, and the first window of each value, while they fit."""
        tape = self.held.trace.tape
        branches = dict.fromkeys(found[0] for name in tape.values if (found := _BLOCK.match(name)))
        for under in branches:
            self._add_if_it_fits("total", under=under)
        for name in tape.values:
            if not _BLOCK.match(name):
                self._add_if_it_fits("total", name=name)
        for name in tape.values:
            self._add_if_it_fits("value", at=name)

    def _add_if_it_fits(self, question: str, **parameters: Any) -> None:
        new: dict[str, str] = {}
        with contextlib.suppress(PellucidError):
            self._ask(new, question, parameters)
        self._keep(new)

    def _keep(self, new: Mapping[str, str]) -> bool:
        """Adds answers to the page, all of them or none; returns whether they fit."""
        if self.used + sum(map(_measure, new.items())) > self.limit:
            return False
        for entry in new.items():
            self._add(entry)
        return True

    def likeliest(self) -> list[str]:
        """Returns the addresses of the likeliest tokens after the last position."""
        if "probs" not in self.held.trace.tape:
            return []
        found = self.ask("next", t=self.held.trace.value("probs").shape[1] - 1, count=LIKELIEST)
        return [token["at"] for token in found["tokens"]]

    def add_path(self, at: str) -> None:
        """Adds the screens from a number along the largest operand that is computed, down to a parameter."""
        seen = set[str]()
        for _ in range(LONGEST_PATH):
            cell = self.add_cell(at)
            if cell is None:
                return
            seen.add(cell["at"])
            ways = [way for way in cell["operands"] if way["opens"] and way["at"] not in seen]
            if not ways:
                return
            at = max(ways, key=lambda way: (LAST.get(way["role"], 2), abs(float(way["value"]))))["at"]

    def add_reachable(self, start: Iterable[str]) -> None:
        """Adds the screens of every number that can be clicked, breadth first, until the page is full."""
        tape = self.held.trace.tape
        begin = list(start) or [
            self.held.trace.address(name, (0,) * tape.values[name].ndim) for name in [*tape.values][-1:]
        ]
        waiting, seen = deque(begin), set(begin)
        while waiting:
            cell = self.add_cell(waiting.popleft())
            if cell is None:
                return
            for at in self._links(cell):
                if at not in seen:
                    seen.add(at)
                    waiting.append(at)

    def add_cell(self, at: str) -> dict[str, Any] | None:
        """Adds what Why asks of one number, all of it or nothing; None where it does not fit any more."""
        new: dict[str, str] = {}
        cell = self._ask(new, "cell", {"at": at})
        for window in (cell["stands"]["window"], *(read["window"] for read in cell["reads"])):
            self._add_window(new, window)
        self._ask(new, "uses", {"name": cell["name"], "at": cell["at"]})
        if cell["can_flatten"]:
            self._ask(new, "cell", {"at": at, "flatten": True})
        return cell if self._keep(new) else None

    def _add_window(self, to: dict[str, str], at: str) -> dict[str, Any]:
        return self._ask(to, "value", {"at": at})

    def _links(self, cell: Mapping[str, Any]) -> Iterator[str]:
        """Yields the address of every number on the screen of one cell."""
        for way in cell["operands"]:
            yield way["at"]
            yield from (other["at"] for other in way["others"])
        for line in (cell["line"] or (), *(term["line"] for term in cell["terms"])):
            yield from (piece["at"] for piece in line if isinstance(piece, dict) and "at" in piece)
        yield from (cell[key] for key in ("twin", "previous", "following") if cell[key])
        for reader in self._ask({}, "uses", {"name": cell["name"], "at": cell["at"]})["readers"]:
            yield reader["at"]
        for at in (cell["stands"]["window"], *(read["window"] for read in cell["reads"])):
            window = self._add_window({}, at)
            for row in window["rows"]:
                for column in window["cols"]:
                    yield window["at"].replace("{row}", str(row["i"])).replace("{col}", str(column["i"]))


def _measure(entry: tuple[str, str]) -> int:
    """Returns the bytes that an answer takes in the page, with its question and what separates them."""
    return sum(len(text.encode()) for text in entry) + len('"":,\n')


def compute_checksum(trace: Trace) -> str:
    """Returns the SHA-256 of every name and number of a trace, in order."""
    total = hashlib.sha256()
    for name, value in trace.tape.values.items():
        total.update(f"{name} {value.dtype} {value.shape}\n".encode())
        total.update(value.data if value.flags.c_contiguous else value.tobytes())
    return total.hexdigest()
