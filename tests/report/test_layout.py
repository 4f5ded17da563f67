"""The layout of a graph: no two boxes touch, and every edge goes forwards."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.base.errors import UsageError
from pellucid.report.diagram import Graph, GraphEdge, GraphNode
from pellucid.report.layout import GAP, find_layers, lay_out

NAMES = "abcdefgh"


def make_graph(*edges: str) -> Graph:
    names = dict.fromkeys(name for edge in edges for name in edge)
    return Graph("", [GraphNode(name, name) for name in names], [GraphEdge(*edge) for edge in edges])


@given(st.sets(st.sampled_from(["".join(pair) for pair in combinations(NAMES, 2)]), min_size=1, max_size=12))
def test_no_two_nodes_of_a_layer_touch_and_every_edge_goes_forwards(edges: set[str]) -> None:
    graph = make_graph(*sorted(edges))
    widths = {node.name: 20.0 + 7 * NAMES.index(node.name) for node in graph.nodes}
    layout = lay_out(graph, widths)
    for layer in layout.layers:
        for a, b in pairwise(layer):
            room = layout.across[b] - layout.across[a] - (widths.get(a, 0) + widths.get(b, 0)) / 2
            assert room >= GAP - 1e-6
    for path in layout.paths:
        places = [next(i for i, layer in enumerate(layout.layers) if name in layer) for name in path]
        assert places == list(range(places[0], places[-1] + 1))


def test_a_chain_with_weights_beside_it_stands_in_line() -> None:
    layout = lay_out(make_graph("xq", "wq", "qs", "ks", "sz", "vz"), dict.fromkeys("xwqksvz", 40.0))
    assert layout.across["q"] == pytest.approx(layout.across["s"], abs=1)
    assert layout.across["s"] == pytest.approx(layout.across["z"], abs=1)


def test_a_long_edge_passes_beside_the_nodes_between() -> None:
    layout = lay_out(make_graph("ab", "bc", "ac"), dict.fromkeys("abc", 40.0))
    passes = layout.paths[2][1]
    assert abs(layout.across[passes] - layout.across["b"]) > 20


def test_a_cycle_and_an_unknown_node_are_refused() -> None:
    with pytest.raises(UsageError, match="cycle"):
        find_layers(make_graph("ab", "ba"))
    with pytest.raises(UsageError, match="'b'"):
        find_layers(Graph("", [GraphNode("a", "a")], [GraphEdge("a", "b")]))
