"""A ledger as an HTML page that needs nothing from elsewhere: tokens colored by surprisal, and of the one
that is pointed at, or walked to with the keyboard, the candidates, the chain and the draw."""

import base64
import hashlib
import json
import math
import re
from bisect import bisect
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from pellucid.files import Kind, check_output, new_file
from pellucid.format import escape_controls
from pellucid.generation.ledger.beam_drawing import draw_beams
from pellucid.generation.ledger.entry import Entry, compute_intervals
from pellucid.generation.ledger.record import LedgerRecord
from pellucid.generation.ledger.settings_text import describe_rule, describe_settings, format_sampler
from pellucid.generation.ledger.token_text import PROPOSER_WORDS, count_names, find_place
from pellucid.generation.request import Completion

LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 7.0)
"""Where the next color begins, in nats."""
SHOWN = 12
"""Candidates of a token on the page, the chosen one among them."""
LONGEST_PROMPT = 400
"""Tokens of the prompt on the page, the last ones."""
MARK = b'<meta name="generator" content="pellucid ledger">'


def _why_not_a_page(path: Path) -> str:
    if not path.is_file():
        return "it is not a file"
    with path.open("rb") as file:
        return "" if MARK in file.read(4096) else "it has no mark of a ledger's page"


LEDGER_PAGE = Kind("a ledger's page", _why_not_a_page)


def check_page_output(path: Path, force: bool = False) -> None:
    """Raises unless a page may be written there; call it before the work."""
    check_output(path, LEDGER_PAGE, force)


def write_page(ledger: LedgerRecord, path: Path, force: bool = False) -> None:
    """Writes the page of a ledger; `force` replaces another page of one."""
    with new_file(path, LEDGER_PAGE, force) as file:
        file.write(make_page(ledger, f"{path.stem}.json").encode("utf-8", "backslashreplace"))


def make_page(ledger: LedgerRecord, file: str = "ledger.json") -> str:
    """Returns the page; `file` is the name of the ledger file in the commands that it shows."""
    here = Path(__file__).parent
    page = (here / "page.html").read_text("utf-8")
    script = (here / "page.js").read_text("utf-8")
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    rows = [(word, text) for word, text in describe_settings(ledger) if word != "prompt"]
    parts = {
        "TITLE": f"Ledger of {_plain(ledger.model.name)}",
        "HEADING": f"How {_plain(ledger.model.name)} chose {_count_tokens(ledger)}",
        "SETTINGS": "\n".join(f"<dt>{word}</dt><dd>{_plain(text)}</dd>" for word, text in rows),
        "LEGEND": "\n".join(_draw_legend(ledger)),
        "CHOICES": "\n".join(_draw_choices(ledger)),
        "BEAMS": "\n".join(draw_beams(ledger)),
        "FILE": _plain(file),
        "MODEL": _plain(ledger.model.path or ledger.model.name),
        "DATA": json.dumps(_make_data(ledger, file), ensure_ascii=False, separators=(",", ":")).replace(
            "<", "\\u003c"
        ),
        "SCRIPT": script,
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(f"\n{script}"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)


def _hash(text: str) -> str:
    """Returns the source expression of a Content-Security-Policy that allows this text alone."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _plain(text: str) -> str:
    return escape(escape_controls(text, keep=""))


def _count_tokens(ledger: LedgerRecord) -> str:
    count = sum(len(completion.ids) for completion in ledger.completions)
    return f"{count:,} token{'s' * (count != 1)}"


def compute_level(surprisal: float) -> int:
    """Returns the color of a surprisal, from 0 to 6.

    >>> compute_level(0.05), compute_level(1.0), compute_level(20)
    (0, 3, 6)
    """
    return bisect(LEVELS, surprisal)


def _draw_legend(ledger: LedgerRecord) -> Iterator[str]:
    """Yields what the colors mean, nothing where no token has an entry."""
    if not any(completion.entries for completion in ledger.completions):
        return
    yield '<ul class="legend" aria-label="colors: the surprisal of a token">'
    yield "<li>surprisal −ln p, in nats:</li>"
    ends = [f"{level:g}" for level in LEVELS]
    words = [f"below {ends[0]}", *(f"to {end}" for end in ends[1:]), f"{ends[-1]} and more"]
    for level, word in enumerate(words):
        yield f'<li><span class="t s{level}">·a</span>{word}</li>'
    if any(completion.speculative for completion in ledger.completions):
        yield '<li><span class="t s0 ok">·a</span>proposed and accepted</li>'
        yield '<li><span class="t s0 no">·a</span>chosen in place of a rejected proposal</li>'
    yield "</ul>"
    keys = " ".join(f"<kbd>{key}</kbd>" for key in "←→↑↓")
    hint = f"Point at a token, or walk with {keys}, to see what else could have been chosen."
    yield f'<p class="faint keys">{hint}</p>'


# ---- the texts


def _draw_choices(ledger: LedgerRecord) -> Iterator[str]:
    for completion in ledger.completions:
        if len(ledger.completions) > 1:
            score = "" if completion.score is None else f" <small>score {completion.score:.4f}</small>"
            yield f"<h2>choice {completion.choice}{score}</h2>"
        prompt = "".join(_draw_prompt(ledger)) if completion.choice == 0 else ""
        tokens = "".join(_draw_tokens(ledger, completion))
        box = f'<span role="listbox" aria-label="the tokens of choice {completion.choice}">{tokens}</span>'
        yield f'<p class="text">{prompt}{box} <span class="end">ended by {completion.finish}</span></p>'


def _draw_prompt(ledger: LedgerRecord) -> Iterator[str]:
    yield '<span class="prompt">'
    if len(ledger.prompt) > LONGEST_PROMPT:
        yield f"… {len(ledger.prompt) - LONGEST_PROMPT:,} tokens before … "
    for id in ledger.prompt[-LONGEST_PROMPT:]:
        yield f'<span class="t">{_draw_text(ledger, id)}</span>{_break_line(ledger, id)}'
    yield "</span>"


def _draw_tokens(ledger: LedgerRecord, completion: Completion) -> Iterator[str]:
    accepted, wrong = _find_proposals(completion)
    for step, id in enumerate(completion.ids):
        if not completion.entries:
            yield f'<span class="t">{_draw_text(ledger, id)}</span>{_break_line(ledger, id)}'
            continue
        entry = completion.entries[step]
        kinds = f"t s{compute_level(entry.surprisal)}"
        kinds += " ok" if step in accepted else " no" if step in wrong else ""
        label = (
            f"token {step + 1}: {_plain(ledger.texts.get(id, str(id)))}, surprisal {entry.surprisal:.2f} nats"
        )
        yield (
            f'<span class="{kinds}" role="option" aria-selected="false" tabindex="-1" aria-label="{label}" '
            f'data-at="{completion.choice} {step}">{_draw_text(ledger, id)}</span>{_break_line(ledger, id)}'
        )


def _draw_text(ledger: LedgerRecord, id: int) -> str:
    """Returns a token's text as HTML, its spaces faint."""
    text = _plain(ledger.texts.get(id, f"#{id}")) or "(empty)"
    return re.sub(r"(·+|(?:\\n|\\t)+)", r"<i>\1</i>", text)


def _break_line(ledger: LedgerRecord, id: int) -> str:
    return "<br>" if ledger.texts.get(id, "").endswith("\\n") else ""


def _find_proposals(completion: Completion) -> tuple[set[int], dict[int, int]]:
    """Returns the steps whose token was proposed and accepted, and the rejected proposal of other steps."""
    accepted, wrong = set[int](), dict[int, int]()
    for one in completion.speculative:
        accepted.update(range(one.step, one.step + one.accepted))
        if one.accepted < len(one.proposed) and one.step + one.accepted < len(completion.ids):
            wrong[one.step + one.accepted] = one.proposed[one.accepted]
    return accepted, wrong


# ---- what the script shows


def _make_data(ledger: LedgerRecord, file: str) -> dict[str, Any]:
    places: dict[int, int] = {}
    names = count_names([sampler.kind for sampler in ledger.chain])
    choices = [
        [
            _make_token(ledger, completion, step, entry, names, places)
            for step, entry in enumerate(completion.entries)
        ]
        for completion in ledger.completions
    ]
    texts = [escape_controls(ledger.texts.get(id, f"#{id}"), keep="") or "(empty)" for id in places]
    return {
        "file": escape_controls(file, keep=""),
        "vocabulary": ledger.model.vocab_size,
        "chain": [escape_controls(format_sampler(sampler), keep="") for sampler in ledger.chain],
        "rule": describe_rule(ledger),
        "texts": texts,
        "choices": choices,
    }


def _make_token(
    ledger: LedgerRecord,
    completion: Completion,
    step: int,
    entry: Entry,
    names: list[str],
    places: dict[int, int],
) -> dict[str, Any]:
    def refer(id: int) -> int:
        return places.setdefault(id, len(places))

    intervals, place = compute_intervals(entry), find_place(entry)
    shown = [*range(min(SHOWN, len(entry.candidates)))]
    if place is not None and place >= SHOWN:
        shown = [*shown[:-1], place]
    candidates = []
    for i in shown:
        one = entry.candidates[i]
        numbers = [_round(value) for value in (one.logit, one.score, one.probability, intervals[one.id][0])]
        candidates.append([refer(one.id), *numbers, i])
    return {
        "text": refer(entry.id),
        "id": entry.id,
        "p": _round(entry.probability),
        "own": _round(math.exp(-entry.surprisal)),
        "surprisal": _round(entry.surprisal),
        "entropy": _round(entry.entropy),
        "rank": entry.rank,
        "u": entry.u,
        "kept": entry.kept,
        "candidates": candidates,
        "removed": [
            [names.index(one.sampler), one.count, _round(one.mass), [refer(id) for id in one.ids]]
            for one in entry.removed
            if one.sampler in names
        ],
        "notes": [*_describe_proposal(ledger, completion, step), *([entry.note] if entry.note else [])],
    }


def _describe_proposal(ledger: LedgerRecord, completion: Completion, step: int) -> Iterator[str]:
    for one in completion.speculative:
        if one.step <= step < one.step + one.accepted:
            yield f"Proposed by {PROPOSER_WORDS[one.proposer]} and accepted: the model drew the same token."
        elif step == one.step + one.accepted and one.accepted < len(one.proposed):
            text = escape_controls(ledger.texts.get(one.proposed[one.accepted], ""), keep="")
            by = PROPOSER_WORDS[one.proposer]
            yield f"Rejected: {text}, proposed by {by}; the model drew another token."


def _round(value: float) -> float | str:
    """Returns six digits of a number: more are in the file."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
