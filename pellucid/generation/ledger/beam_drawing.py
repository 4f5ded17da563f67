"""The tree of a beam search as a drawing: a node is a token, to the right of the one before it."""

from collections.abc import Iterator
from html import escape

from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import BeamNode
from pellucid.generation.ledger.token_text import token_text

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
