"""Places of the nodes of a graph: in layers along its direction, ordered so that few edges cross.

An edge over several layers passes through a point in each layer between, which is placed like a node.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pellucid.base.errors import UsageError
from pellucid.report.diagram import Graph

SWEEPS, MOVES = 12, 120
"""How often each layer is ordered by its neighbors, and then moved towards them."""
SIDE, PASS = 0.01, 0.001
"""How much a node that reads none pulls its neighbors, and a passing edge: the others, which pull by 1,
stand in line."""
GAP, THROUGH = 16, 10
"""Pixels between two nodes of a layer, and the width of an edge that passes a layer."""

Size = tuple[float, float]
"""Pixels along the direction of the graph, and across it."""


@dataclass(frozen=True)
class Layout:
    """The layers of nodes (and of points of long edges), the place of each across the direction, and the
    path of each edge: source, points, target."""

    layers: Sequence[Sequence[str]]
    across: Mapping[str, float]
    paths: Sequence[Sequence[str]]


def find_layers(graph: Graph) -> dict[str, int]:
    """Returns the layer of each node: one after the last that it reads. A node that reads none stands just
    before its first reader.

    >>> from pellucid.report.diagram import GraphEdge, GraphNode
    >>> nodes = [GraphNode(name, name) for name in ("x", "y", "W", "z")]
    >>> edges = [GraphEdge("x", "y"), GraphEdge("y", "z"), GraphEdge("W", "z")]
    >>> find_layers(Graph("", nodes, edges))
    {'x': 0, 'y': 1, 'W': 1, 'z': 2}
    """
    layers = {node.name: 0 for node in graph.nodes}
    for edge in graph.edges:
        if unknown := {edge.source, edge.target} - set(layers):
            raise UsageError(f"an edge of the graph names {min(unknown)!r}, which is not one of its nodes.")
    for _ in graph.nodes:
        for edge in graph.edges:
            layers[edge.target] = max(layers[edge.target], layers[edge.source] + 1)
    if any(layers[edge.target] <= layers[edge.source] for edge in graph.edges):
        raise UsageError("the edges of the graph form a cycle, so it has no layers.")
    read = {edge.target for edge in graph.edges}
    for node in graph.nodes:
        readers = [layers[edge.target] for edge in graph.edges if edge.source == node.name]
        if node.name not in read and readers:
            layers[node.name] = min(readers) - 1
    return layers


def lay_out(graph: Graph, widths: Mapping[str, float]) -> Layout:
    """Returns the layout, given the width of each node across the direction."""
    of = find_layers(graph)
    layers: list[list[str]] = [[] for _ in range(max(of.values(), default=-1) + 1)]
    for node in graph.nodes:
        layers[of[node.name]].append(node.name)
    paths = []
    sizes = dict(widths)
    for number, edge in enumerate(graph.edges):
        between = range(of[edge.source] + 1, of[edge.target])
        points = [f"{edge.source}>{edge.target}#{number}@{layer}" for layer in between]
        for layer, point in zip(between, points, strict=True):
            layers[layer].append(point)
            sizes[point] = THROUGH
        paths.append([edge.source, *points, edge.target])
    neighbors: dict[str, list[str]] = {name: [] for layer in layers for name in layer}
    for path in paths:
        for a, b in itertools.pairwise(path):
            neighbors[a].append(b)
            neighbors[b].append(a)
    _order(layers, neighbors)
    read = {edge.target for edge in graph.edges}
    weights = {name: 1.0 if name in read else SIDE if name in of else PASS for name in neighbors}
    return Layout(layers, _place(layers, neighbors, sizes, weights), paths)


def _order(layers: list[list[str]], neighbors: Mapping[str, list[str]]) -> None:
    """Sorts each layer by the mean place of its neighbors in the layer before, then in the one after."""
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        for i in range(1, len(layers)) if forwards else range(len(layers) - 2, -1, -1):
            beside = _ranks(layers[i - 1 if forwards else i + 1])
            own = _ranks(layers[i])
            means = {}
            for name in layers[i]:
                found = [beside[other] for other in neighbors[name] if other in beside]
                means[name] = sum(found) / len(found) if found else own[name]
            layers[i].sort(key=means.__getitem__)


def _ranks(layer: Sequence[str]) -> dict[str, float]:
    """Returns the place of each node in its layer, from 0 to 1."""
    return {name: rank / max(len(layer) - 1, 1) for rank, name in enumerate(layer)}


def _place(
    layers: Sequence[Sequence[str]],
    neighbors: Mapping[str, list[str]],
    sizes: Mapping[str, float],
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Returns the middle of each node across the direction: near its neighbors, and clear of the next.

    Each move lowers Σ force · distance² over all neighbors. Two of them pull each other alike, else the whole
    would drift.
    """

    def pull(a: str, b: str) -> float:
        both = weights[a], weights[b]
        return 1.0 if both == (PASS, PASS) else min(both)  # an edge is straight while it passes

    pulls = {
        name: [(other, pull(name, other)) for other in neighbors[name]] or [(name, 1.0)]
        for layer in layers
        for name in layer
    }
    strengths = {name: sum(force for _, force in pulls[name]) for name in pulls}
    across = {name: 0.0 for layer in layers for name in layer}
    for move in range(MOVES):
        for layer in layers if move % 2 == 0 else reversed(layers):
            wanted = {
                name: sum(force * across[other] for other, force in pulls[name]) / strengths[name]
                for name in layer
            }
            across |= _separate(layer, wanted, sizes, strengths)
    least = min((across[name] - sizes[name] / 2 for name in across), default=0.0)
    return {name: place - least for name, place in across.items()}


def _separate(
    layer: Sequence[str],
    wanted: Mapping[str, float],
    sizes: Mapping[str, float],
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Returns places in the order of the layer, as near to the wanted ones as their sizes allow."""
    groups: list[tuple[list[str], float]] = []  # nodes that touch, and the place of the first
    for name in layer:
        group, start = [name], wanted[name]
        while groups and groups[-1][1] + _length(groups[-1][0], group[0], sizes) > start:
            before, _ = groups.pop()
            group = before + group
            offsets = _offsets(group, sizes)
            pulls = [
                weights[one] * (wanted[one] - offset) for one, offset in zip(group, offsets, strict=True)
            ]
            start = sum(pulls) / sum(weights[one] for one in group)
        groups.append((group, start))
    return {
        name: start + offset
        for group, start in groups
        for name, offset in zip(group, _offsets(group, sizes), strict=True)
    }


def _offsets(group: Sequence[str], sizes: Mapping[str, float]) -> list[float]:
    """Returns the place of each node of a group from that of the first."""
    found = [0.0]
    for a, b in itertools.pairwise(group):
        found.append(found[-1] + (sizes[a] + sizes[b]) / 2 + GAP)
    return found


def _length(group: Sequence[str], after: str, sizes: Mapping[str, float]) -> float:
    """Returns how far the node after a group stands from its first."""
    return _offsets([*group, after], sizes)[-1]
