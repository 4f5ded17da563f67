"""A ledger as an HTML page that needs nothing from elsewhere: tokens colored by surprisal, and of the one
that is pointed at, or walked to with the keyboard, the candidates, the chain and the draw."""

import math
import shlex
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from pellucid.base.files import check_output, make_page_kind, new_file
from pellucid.base.formatting import escape_controls
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import BeamNode, Entry, compute_intervals
from pellucid.generation.ledger.text import (
    PROPOSER_WORDS,
    count_names,
    describe_rule,
    describe_settings,
    find_place,
    format_sampler,
    token_text,
)
from pellucid.generation.request import Completion
from pellucid.report.page import escape_text, read_style
from pellucid.report.page import make_page as write_html
from pellucid.report.surprisal import TOKEN_STYLE, draw_legend, draw_token

SHOWN = 12
"""Candidates of a token on the page, the chosen one among them."""
LONGEST_PROMPT = 400
"""Tokens of the prompt on the page, the last ones."""
SPECULATIVE = (
    '<li><span class="t s0 ok">·a</span>proposed and accepted</li>',
    '<li><span class="t s0 no">·a</span>chosen in place of a rejected proposal</li>',
)
"""What the marks of speculative decoding mean."""
MARK = b'<meta name="generator" content="pellucid ledger">'
LEDGER_PAGE = make_page_kind("a ledger's page", MARK)


def check_page_output(path: Path, force: bool = False) -> None:
    """Raises unless a page may be written there; call it before the work."""
    check_output(path, LEDGER_PAGE, force)


def write_page(ledger: LedgerRecord, path: Path, force: bool = False) -> None:
    """Writes the page of a ledger; `force` replaces another page of one."""
    with new_file(path, LEDGER_PAGE, force) as file:
        file.write(make_page(ledger, f"{path.stem}.json").encode("utf-8", "backslashreplace"))


def make_page(ledger: LedgerRecord, file: str = "ledger.json") -> str:
    """Returns the page; `file` is the name of the ledger file in the commands that it shows."""
    here, model = Path(__file__).parent, ledger.model.name
    rows = [(word, text) for word, text in describe_settings(ledger) if word != "prompt"]
    settings = "\n".join(f"<dt>{word}</dt><dd>{escape_text(text)}</dd>" for word, text in rows)
    body = f"""<details id="settings" open><summary>settings</summary>
<dl class="settings">
{settings}
</dl></details>
{chr(10).join(_draw_legend(ledger))}
<main>
<div>
{chr(10).join(_draw_choices(ledger))}
{chr(10).join(draw_beams(ledger))}
</div>
<aside id="panel" aria-live="polite" aria-label="the selected token" hidden></aside>
</main>
<footer>
<p>Recompute every draw, and with the model every number:</p>
<pre><code>pellucid replay {escape_text(file)}
pellucid replay {escape_text(file)} --model {escape_text(shlex.quote(model))}</code></pre>
<p>Go on into the model, from the probability of a token to its logits and the blocks behind them:</p>
<pre><code id="explain">pellucid explain {escape_text(file)} --token 1</code></pre>
<p class="faint">Surprisal, entropy and rank are of the model's own distribution; p is the probability after
every sampler. Rank 0 has the largest logit. This page asks nothing of the network; its numbers are rounded,
those of the file are exact.</p>
</footer>"""
    return write_html(
        "pellucid ledger",
        f"How {model} chose {_count_tokens(ledger)}",
        _summarize(ledger),
        body,
        style=TOKEN_STYLE + read_style(here / "page.css"),
        script=read_style(here / "page.js"),
        data=_make_data(ledger, file),
    )


def _summarize(ledger: LedgerRecord) -> str:
    """Returns what was found, in one sentence."""
    entries = [entry for completion in ledger.completions for entry in completion.entries]
    if not entries:
        return "Each token of the text, and what was computed of it."
    mean = sum(entry.surprisal for entry in entries) / len(entries)
    first = sum(entry.rank == 0 for entry in entries) / len(entries)
    return (
        f"On average a token surprised the model by {mean:.2f} nats; {first:.0%} were its own first choice."
    )


def _count_tokens(ledger: LedgerRecord) -> str:
    count = sum(len(completion.ids) for completion in ledger.completions)
    return f"{count:,} token{'s' * (count != 1)}"


def _draw_legend(ledger: LedgerRecord) -> Iterator[str]:
    """Yields what the colors mean, nothing where no token has an entry."""
    if not any(completion.entries for completion in ledger.completions):
        return
    is_speculative = any(completion.speculative for completion in ledger.completions)
    yield from draw_legend(*SPECULATIVE if is_speculative else ())
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
        yield draw_token(_find_text(ledger, id), None)
    yield "</span>"


def _draw_tokens(ledger: LedgerRecord, completion: Completion) -> Iterator[str]:
    accepted, wrong = _find_proposals(completion)
    for step, id in enumerate(completion.ids):
        text = _find_text(ledger, id)
        if not completion.entries:
            yield draw_token(text, None)
            continue
        entry = completion.entries[step]
        fate = " ok" if step in accepted else " no" if step in wrong else ""
        named = escape_text(ledger.texts.get(id, str(id)))
        label = f"token {step + 1}: {named}, surprisal {entry.surprisal:.2f} nats"
        attributes = (
            f' role="option" aria-selected="false" tabindex="-1" aria-label="{label}" '
            f'data-at="{completion.choice} {step}"'
        )
        yield draw_token(text, entry.surprisal, attributes, fate)


def _find_text(ledger: LedgerRecord, id: int) -> str:
    return ledger.texts.get(id, f"#{id}")


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


MOST_NODES = 400
"""Nodes that are drawn: of a larger search the kept and finished ones, and of those the first."""
COLUMN, ROW, RADIUS = 138, 34, 4
MARGIN = 18


def draw_beams(ledger: LedgerRecord) -> Iterator[str]:
    """Yields the heading and the drawing, nothing where there was no beam search."""
    if not ledger.beams:
        return
    shown = select_nodes(ledger.beams)
    hidden = len(ledger.beams) - len(shown)
    more = f"; {hidden:,} more are in the file" if hidden else ""
    yield (
        f"<h2>beam search <small>{ledger.sampling.beams} beams, length penalty "
        f"{ledger.sampling.length_penalty:g}; under each token Σ ln p, and at an end the final score; "
        f"blue: what was chosen; dashed: pruned{more}"
        "</small></h2>"
    )
    places = lay_out(ledger.beams, shown)
    best = find_best(ledger)
    width = MARGIN * 2 + COLUMN * (1 + max(x for x, _ in places.values()))
    height = MARGIN * 2 + ROW * (1 + max(y for _, y in places.values()))
    yield '<div class="tree" tabindex="0" role="img" aria-label="the tree of the beam search">'
    yield f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    for place in sorted(shown, key=lambda place: (place in best, ledger.beams[place].fate != "pruned")):
        yield _draw_node(ledger, place, places, place in best)  # the best on top
    yield "</svg></div>"


def select_nodes(beams: tuple[BeamNode, ...]) -> list[int]:
    """Returns the nodes that are drawn, parents before children."""
    if len(beams) <= MOST_NODES:
        return list(range(len(beams)))
    return [place for place, node in enumerate(beams) if node.fate != "pruned"][:MOST_NODES]


def lay_out(beams: tuple[BeamNode, ...], shown: list[int]) -> dict[int, tuple[float, float]]:
    """Returns the column and row of each node: a leaf has a row of its own, a parent the middle of its
    children's."""
    children: dict[int, list[int]] = {}
    columns: dict[int, int] = {}
    for place in shown:
        parent = beams[place].parent
        children.setdefault(parent, []).append(place)
        columns[place] = columns.get(parent, -1) + 1
    rows: dict[int, float] = {}
    free = 0
    waiting = [(place, False) for place in reversed(children.get(-1, []))]
    while waiting:
        place, is_open = waiting.pop()
        below = children.get(place, [])
        if is_open:
            rows[place] = (rows[below[0]] + rows[below[-1]]) / 2
        elif below:
            waiting.append((place, True))
            waiting += [(child, False) for child in reversed(below)]
        else:
            rows[place], free = float(free), free + 1
    return {place: (float(columns[place]), rows[place]) for place in shown}


def find_best(ledger: LedgerRecord) -> set[int]:
    """Returns the nodes of the choices."""
    best = set[int]()
    for completion in ledger.completions:
        node = -1 if completion.node is None else completion.node
        while node >= 0:
            best.add(node)
            node = ledger.beams[node].parent
    return best


def _draw_node(
    ledger: LedgerRecord, place: int, places: dict[int, tuple[float, float]], is_best: bool
) -> str:
    node = ledger.beams[place]
    (column, row), parent = places[place], places.get(node.parent)
    x, y = MARGIN + COLUMN * column + 20, MARGIN + ROW * row + ROW / 2
    line = ""
    if parent is not None:
        before, above = MARGIN + COLUMN * parent[0] + 20, MARGIN + ROW * parent[1] + ROW / 2
        bend = before + COLUMN - 38
        curve = f"C{bend + 14} {above} {bend + 6} {y} {x - RADIUS} {y}"
        line = f'<path d="M{before + RADIUS} {above}H{bend}{curve}"/>'
    score = f"{node.score:.3f}" + ("" if node.final is None else f" → {node.final:.3f}")
    return (
        f'<g class="{node.fate}{" best" * is_best}">{line}<circle cx="{x}" cy="{y}" r="{RADIUS}"/>'
        f'<text x="{x + 8}" y="{y - 5}">{escape(token_text(ledger, node.id, 12))}</text>'
        f'<text class="score" x="{x + 8}" y="{y + 11}">{score}</text></g>'
    )
