"""Recorded steps are kept, and the one that was used longest ago is dropped."""

from types import SimpleNamespace
from typing import Any

import torch


def test_the_step_that_was_used_longest_ago_is_dropped(device: torch.device) -> None:
    from pellucid.engine.gpu.graphs import GraphKey, Graphs

    made = list[GraphKey]()

    def make(key: GraphKey) -> Any:
        made.append(key)
        return SimpleNamespace(buffers=SimpleNamespace(x=torch.empty(0)), run=lambda: None)

    graphs = Graphs(make, most=2)
    one, two, three = (GraphKey(texts, 1, False) for texts in (1, 2, 4))
    first = graphs.find(one)
    graphs.find(two)
    assert graphs.find(one) is first
    graphs.find(three)
    assert (one in graphs, two in graphs, three in graphs, len(graphs)) == (True, False, True, 2)
    graphs.find(two)
    assert made == [one, two, three, two]


def test_steps_that_draw_and_that_do_not_are_different(device: torch.device) -> None:
    from pellucid.engine.gpu.graphs import GraphKey

    assert GraphKey(2, 1, True) != GraphKey(2, 1, False)
