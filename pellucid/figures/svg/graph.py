"""A graph as SVG: a box for each value with its numbers and its gradient, and arrows between them."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from pellucid.figures.diagram import Graph, GraphNode, format_rows
from pellucid.figures.layout import lay_out
from pellucid.figures.svg.marks import (
    BOLD,
    COLORS,
    FAINT,
    HALO,
    INK,
    LINE,
    PAPER,
    SMALL,
    Tile,
    line,
    rect,
    symbol_text,
    text,
    text_width,
    title_marks,
    wrap,
)  # fmt: skip

PAD, BETWEEN = 8, 34
"""Pixels around the texts of a node, and between two layers."""
HEAD = 6
"""Pixels of an arrow's head."""
GRADIENT = COLORS[1]
LEGEND = "below the line: the gradient of the loss"


class NodeBox(NamedTuple):
    """The box of a node; a point of an edge has no size."""

    x: float
    y: float
    width: float
    height: float


def graph_tile(graph: Graph, size: tuple[int, int]) -> Tile:
    """Returns the room of all nodes, the title above them and the legend below."""
    places, _ = _arrange(graph)
    width = max((p.x + p.width for p in places.values()), default=0)
    height = max((p.y + p.height for p in places.values()), default=0)
    lines = wrap(graph.title, max(width, 240), is_bold=True)
    width = max(
        [
            width,
            *(text_width(words, 12, True) for words in lines),
            *(text_width(words, 11) for words in _legend(graph, width)),
        ]
    )
    return Tile(
        0,
        8,
        0,
        0,
        round(width),
        round(LINE * len(lines) + 8 + height + LINE * len(_legend(graph, width)) + 8),
    )


def _legend(graph: Graph, width: float) -> list[str]:
    has_gradient = any(node.gradient is not None for node in graph.nodes)
    return wrap(LEGEND, max(width, 150), 11) if has_gradient else []


def _value_lines(node: GraphNode, decimals: int) -> list[str]:
    return format_rows(node.value, decimals) if node.value is not None else []


def _gradient_lines(node: GraphNode, decimals: int) -> list[str]:
    return format_rows(node.gradient, decimals) if node.gradient is not None else []


def _size(node: GraphNode, decimals: int) -> tuple[float, float]:
    """Returns the width and the height of a node's box."""
    values, gradients = _value_lines(node, decimals), _gradient_lines(node, decimals)
    widths = [text_width(node.symbol, 12, True), *(text_width(words, 11) for words in (*values, *gradients))]
    return max(widths) + 2 * PAD, LINE * (1 + len(values) + len(gradients)) + PAD + (4 if gradients else 0)


def _arrange(graph: Graph) -> tuple[dict[str, NodeBox], list[list[NodeBox]]]:
    """Returns the box of every node, and the boxes that each edge goes through."""
    sizes = {node.name: _size(node, graph.decimals) for node in graph.nodes}
    is_down = graph.direction == "down"
    layout = lay_out(graph, {name: size[0 if is_down else 1] for name, size in sizes.items()})
    labels = [text_width(edge.label, 11) + 22 for edge in graph.edges if edge.label]
    between = BETWEEN if is_down else max([BETWEEN, *labels])
    places, along = {}, 0.0
    for layer in layout.layers:
        deep = max(sizes[name][1 if is_down else 0] for name in layer if name in sizes)
        for name in layer:
            width, height = sizes.get(name, (0.0, deep) if is_down else (deep, 0.0))
            middle = along + deep / 2, layout.across[name]
            x, y = (middle[1], middle[0]) if is_down else middle
            places[name] = NodeBox(x - width / 2, y - height / 2, width, height)
        along += deep + between
    return places, [[places[name] for name in path] for path in layout.paths]


def graph_marks(graph: Graph, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the title, the arrows with their labels, and the boxes."""
    (places, paths), is_down = _arrange(graph), graph.direction == "down"
    width = max((p.x + p.width for p in places.values()), default=0)
    lines = wrap(graph.title, max(width, 240), is_bold=True)
    yield from title_marks(lines, left, top)
    y = top + LINE * len(lines) + 8
    for edge, path in zip(graph.edges, paths, strict=True):
        yield from _arrow(path, edge.label, is_down, left, y)
    for node in graph.nodes:
        yield from _box(node, places[node.name], graph.decimals, left, y)
    bottom = y + max((p.y + p.height for p in places.values()), default=0)
    for i, words in enumerate(_legend(graph, width)):
        yield text(left, bottom + LINE * (i + 1) + 2, words, SMALL)


def _box(node: GraphNode, place: NodeBox, decimals: int, left: float, top: float) -> Iterator[str]:
    x, y, middle = left + place.x, top + place.y, left + place.x + place.width / 2
    dash = ' stroke-dasharray="4 3"' if node.is_given else ""
    yield rect(
        round(x, 1),
        round(y, 1),
        round(place.width, 1),
        round(place.height, 1),
        f'rx="5" fill="{PAPER}" stroke="{INK}"{dash}',
    )
    yield symbol_text(round(middle, 1), round(y + 15, 1), node.symbol, f'text-anchor="middle" {BOLD}')
    at = y + 15
    for words in _value_lines(node, decimals):
        at += LINE
        yield text(round(middle, 1), round(at, 1), words, 'text-anchor="middle" font-size="11"')
    gradients = _gradient_lines(node, decimals)
    if gradients:
        at += 4
        yield line(
            round(x, 1), round(at + 3, 1), round(x + place.width, 1), round(at + 3, 1), f'stroke="{GRADIENT}"'
        )
    for words in gradients:
        at += LINE
        yield text(
            round(middle, 1), round(at, 1), words, f'text-anchor="middle" font-size="11" fill="{GRADIENT}"'
        )


def _arrow(path: list[NodeBox], label: str, is_down: bool, left: float, top: float) -> Iterator[str]:
    """Yields a curve from the end of one box through the layers between to the begin of another."""
    first, last = path[0], path[-1]
    points = [
        _exit(first, is_down),
        *(p for place in path[1:-1] for p in (_entry(place, is_down), _exit(place, is_down))),
        _entry(last, is_down),
    ]
    shown = [(round(left + x, 1), round(top + y, 1)) for x, y in points]
    curve = f"M{shown[0][0]:g} {shown[0][1]:g}"
    for (x, y), (to_x, to_y) in itertools.pairwise(shown):
        turns = (
            ((x, (y + to_y) / 2), (to_x, (y + to_y) / 2))
            if is_down
            else (((x + to_x) / 2, y), ((x + to_x) / 2, to_y))
        )
        curve += "C" + " ".join(f"{a:.1f} {b:.1f}" for a, b in (*turns, (to_x, to_y)))
    yield f'<path fill="none" stroke="{FAINT}" stroke-width="1.3" d="{curve}"/>'
    x, y = shown[-1]
    head = f"M{x:g} {y:g}l-4 -{HEAD}h8z" if is_down else f"M{x:g} {y:g}l-{HEAD} -4v8z"
    yield f'<path fill="{FAINT}" d="{head}"/>'
    if label:
        (x, y), (to_x, to_y) = shown[:2]
        anchor, dx, dy = ("start", 5, 4) if is_down else ("middle", 0, -5)
        yield text(
            round((x + to_x) / 2 + dx, 1),
            round((y + to_y) / 2 + dy, 1),
            label,
            f'text-anchor="{anchor}" {SMALL} {HALO}',
        )


def _exit(place: NodeBox, is_down: bool) -> tuple[float, float]:
    if is_down:
        return place.x + place.width / 2, place.y + place.height
    return place.x + place.width, place.y + place.height / 2


def _entry(place: NodeBox, is_down: bool) -> tuple[float, float]:
    return (place.x + place.width / 2, place.y) if is_down else (place.x, place.y + place.height / 2)
