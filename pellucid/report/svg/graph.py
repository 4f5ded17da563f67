"""A graph as SVG: a box for each value with its numbers and its gradient, and arrows between them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from pellucid.report.diagram import Graph, GraphNode, format_rows
from pellucid.report.layout import lay_out
from pellucid.report.svg.marks import (
    BOLD,
    COLORS,
    FAINT,
    HALO,
    INK,
    LINE,
    MIDDLE,
    PAPER,
    SMALL,
    Tile,
    line,
    rect,
    symbol_text,
    text_width,
    title_marks,
    wrap,
)

PAD, BETWEEN = 8, 34
"""Pixels around the texts of a node, and between two layers."""
NARROW = 200
"""Pixels that a title or a legend may always take."""
HEAD = 6
"""Pixels of an arrow's head."""
GRADIENT = COLORS[1]
LEGEND = "below the line: the gradient of the loss"


class NodeBox(NamedTuple):
    """The box of a node; that of an edge which passes a layer is as long as the layer, and has no width."""

    x: float
    y: float
    width: float
    height: float

    def begin(self, is_down: bool) -> tuple[float, float]:
        """Returns the point where an edge arrives."""
        return (self.x + self.width / 2, self.y) if is_down else (self.x, self.y + self.height / 2)

    def end(self, is_down: bool) -> tuple[float, float]:
        """Returns the point where an edge leaves."""
        x, y = self.begin(is_down)
        return (x, y + self.height) if is_down else (x + self.width, y)


class Arrangement(NamedTuple):
    """The boxes of the nodes, the boxes that each edge goes through, and the size of the whole."""

    boxes: dict[str, NodeBox]
    paths: list[list[NodeBox]]
    width: float
    height: float
    title: list[str]
    legend: list[str]


def graph_tile(graph: Graph, size: tuple[int, int]) -> Tile:
    """Returns the room of all nodes, the title above them and the legend below."""
    arranged = _arrange(graph)
    titles = (text_width(words, 12, True) for words in arranged.title)
    width = max([arranged.width, *titles, *(text_width(words, 11) for words in arranged.legend)])
    height = LINE * (len(arranged.title) + len(arranged.legend)) + arranged.height + 2 * PAD
    return Tile(0, 8, 0, 0, round(width), round(height))


def _arrange(graph: Graph) -> Arrangement:
    is_down = graph.direction == "down"
    sizes = {node.name: _size(node, graph.decimals) for node in graph.nodes}
    layout = lay_out(graph, {name: size[0 if is_down else 1] for name, size in sizes.items()})
    labels = [text_width(edge.label, 11) + 22 for edge in graph.edges if edge.label]
    between = BETWEEN if is_down else max([BETWEEN, *labels])
    boxes, along = dict[str, NodeBox](), 0.0
    for layer in layout.layers:
        long = max(sizes[name][1 if is_down else 0] for name in layer if name in sizes)
        for name in layer:
            width, height = sizes.get(name, (0.0, long) if is_down else (long, 0.0))
            middle = (layout.across[name], along + long / 2)
            x, y = middle if is_down else reversed(middle)
            boxes[name] = NodeBox(x - width / 2, y - height / 2, width, height)
        along += long + between
    right = max((box.x + box.width for box in boxes.values()), default=0.0)
    bottom = max((box.y + box.height for box in boxes.values()), default=0.0)
    has_gradient = any(node.gradient is not None for node in graph.nodes)
    return Arrangement(
        boxes,
        [[boxes[name] for name in path] for path in layout.paths],
        right,
        bottom,
        wrap(graph.title, max(right, NARROW), is_bold=True),
        wrap(LEGEND, max(right, NARROW), 11) if has_gradient else [],
    )


def _size(node: GraphNode, decimals: int) -> tuple[float, float]:
    """Returns the width and the height of a node's box."""
    values, gradients = _rows(node.value, decimals), _rows(node.gradient, decimals)
    widths = [text_width(node.symbol, 12, True), *(text_width(words, 11) for words in (*values, *gradients))]
    return max(widths) + 2 * PAD, LINE * (1 + len(values) + len(gradients)) + PAD + (4 if gradients else 0)


def _rows(numbers: Any, decimals: int) -> list[str]:
    return format_rows(numbers, decimals) if numbers is not None else []


def graph_marks(graph: Graph, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the title, the arrows with their labels, the boxes, and what is below a box's line."""
    arranged, is_down = _arrange(graph), graph.direction == "down"
    yield from title_marks(arranged.title, left, top)
    top += LINE * len(arranged.title) + PAD
    for edge, path in zip(graph.edges, arranged.paths, strict=True):
        yield from _arrow(path, edge.label, is_down, left, top)
    for node in graph.nodes:
        box = arranged.boxes[node.name]
        yield from _node(node, box._replace(x=left + box.x, y=top + box.y), graph.decimals)
    for i, words in enumerate(arranged.legend, 1):
        yield symbol_text(left, top + arranged.height + LINE * i + 2, words, SMALL)


def _node(node: GraphNode, box: NodeBox, decimals: int) -> Iterator[str]:
    """Yields a box with the symbol, the value, and below a line the gradient."""
    dash = ' stroke-dasharray="4 3"' if node.is_given else ""
    yield rect(*box, f'rx="5" fill="{PAPER}" stroke="{INK}"{dash}')
    middle, y = box.x + box.width / 2, box.y + 15
    yield symbol_text(middle, y, node.symbol, f"{MIDDLE} {BOLD}")
    for words in _rows(node.value, decimals):
        y += LINE
        yield symbol_text(middle, y, words, f'{MIDDLE} font-size="11"')
    if node.gradient is not None:
        y += 4
        yield line(box.x, y + 3, box.x + box.width, y + 3, f'stroke="{GRADIENT}"')
    for words in _rows(node.gradient, decimals):
        y += LINE
        yield symbol_text(middle, y, words, f'{MIDDLE} font-size="11" fill="{GRADIENT}"')


def _arrow(path: list[NodeBox], label: str, is_down: bool, left: float, top: float) -> Iterator[str]:
    """Yields a curve from the end of one box through the layers between to the begin of another."""
    points = [point for box in path for point in (box.begin(is_down), box.end(is_down))][1:-1]
    points = [(left + x, top + y) for x, y in points]
    curve = "M{:.1f} {:.1f}".format(*points[0])
    for (x, y), (to_x, to_y) in pairwise(points):
        half_x, half_y = (x + to_x) / 2, (y + to_y) / 2
        bends = (x, half_y, to_x, half_y) if is_down else (half_x, y, half_x, to_y)
        curve += "C" + " ".join(f"{place:.1f}" for place in (*bends, to_x, to_y))
    yield f'<path fill="none" stroke="{FAINT}" stroke-width="1.3" d="{curve}"/>'
    head = f"l-4 -{HEAD}h8z" if is_down else f"l-{HEAD} -4v8z"
    yield f'<path fill="{FAINT}" d="{"M{:.1f} {:.1f}".format(*points[-1])}{head}"/>'
    if label:
        (x, y), (to_x, to_y) = points[:2]
        anchor, right, down = ("start", 5, 4) if is_down else ("middle", 0, -5)
        place = (x + to_x) / 2 + right, (y + to_y) / 2 + down
        yield symbol_text(*place, label, f'text-anchor="{anchor}" {SMALL} {HALO}')
