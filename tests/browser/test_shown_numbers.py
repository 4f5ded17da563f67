"""Every number on the page is the number of the trace, to the printed digit."""

import json
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Route

import pellucid
from pellucid.base.formatting import format_number
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from tests.browser.driver import ShownNumber, Visitor, go, read_numbers, walk, why
from tests.browser.models import GPT2, LLAMA, write_model
from tests.browser.served import Served

SMOLLM2 = os.environ.get("PELLUCID_SMOLLM2", "")
RUN_ARGUMENTS = ["--target", "C", "--update", "sgd", "--lr", "1"]
DIGITS = {"headline": [6], "table": [4], "line": [5], "other": [4, 5]}
UPDATE: dict[str, Any] = {"update": "sgd", "lr": 1.0, "steps": 1}


def find_wrong(trace: Trace, numbers: Sequence[ShownNumber]) -> list[tuple[ShownNumber, float]]:
    """Returns the numbers whose text is not their cell's value, rounded as in their place, with that value.

    Within a line the sign stands in the text before a number."""
    wrong = []
    for number in numbers:
        address = parse(trace, number.at)
        assert address.cell is not None, number.at
        value = float(trace.value(address.name)[address.cell])
        shown = abs(value) if number.place == "line" else value
        texts = [format_number(shown, digits).replace("-", "−") for digits in DIGITS[number.place]]
        if number.text.strip() not in texts:
            wrong.append((number, value))
    return wrong


def list_cells(trace: Trace) -> list[str]:
    """Returns the address of every number of a trace."""
    return [
        trace.address(name, index)
        for name in trace.tape.values
        for index in np.ndindex(trace.value(name).shape)
    ]


@pytest.mark.parametrize("share", ["values", pytest.param("cells", marks=pytest.mark.torture)])
def test_every_number_of_abcd_is_shown_as_the_trace_has_it(
    visit: Callable[..., Visitor], serve: Callable[..., Served], share: str
) -> None:
    """Forward, backward and one update: the screen of a cell of each value, or of every cell. The windows on
    these screens show all cells in either case."""
    page = visit().explore(serve("abcd", "A B", *RUN_ARGUMENTS))
    trace = pellucid.load("abcd").trace("A B", target="C", **UPDATE)
    cells = list_cells(trace)
    opened = cells if share == "cells" else list({at.partition("[")[0]: at for at in cells}.values())
    screens = walk(page, [why(at) for at in opened])
    assert [failure for failure, _ in screens if failure] == []
    for at, (_, numbers) in zip(opened, screens, strict=True):
        assert [number.at for number in numbers if number.place == "headline"] == [at]
    assert find_wrong(trace, [number for _, numbers in screens for number in numbers]) == []
    assert {number.at for _, numbers in screens for number in numbers} == set(cells)


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.rotating
@pytest.mark.parametrize(("config", "seed"), [(LLAMA, 1), (GPT2, 2)], ids=["llama", "gpt2"])
def test_cells_of_other_models_are_shown_as_the_trace_has_them(
    visit: Callable[..., Visitor],
    serve: Callable[..., Served],
    folder: Path,
    config: dict[str, Any],
    seed: int,
) -> None:
    """Cells of any value, and every number that stands beside them, on every screen."""
    model = write_model(folder / f"model{seed}.toml", config, seed=seed)
    prompt, target = "the cat sat on", "a"
    server = serve(str(model), prompt, "--target", target, "--update", "sgd", "--lr", "0.1")
    trace = pellucid.load(str(model)).trace(prompt, target=target, update="sgd", lr=0.1, steps=1)
    compare_sample(visit(), server, trace, random.Random(seed), count=8)


@pytest.mark.skipif(not SMOLLM2, reason="PELLUCID_SMOLLM2 names no file")
def test_cells_of_a_real_model_are_shown_as_the_trace_has_them(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    trace = pellucid.load(SMOLLM2).trace("The cat sat on")
    compare_sample(visit(), serve(SMOLLM2, "The cat sat on"), trace, random.Random(3), count=24)


def compare_sample(visitor: Visitor, server: Served, trace: Trace, rng: random.Random, count: int) -> None:
    """Compares every number on every screen, and on the screens of `count` cells of any values."""
    page = visitor.explore(server)
    page.wait_for_selector("table.next", timeout=60_000)
    names = rng.sample([name for name in trace.tape.values if trace.value(name).size], count)
    cells = [trace.address(name, tuple(map(rng.randrange, trace.value(name).shape))) for name in names]
    others = ["#read", "#read/1", "#attention/1/1", *(f"#map/{name}" for name in names[:4])]
    screens = walk(page, [*map(why, cells), *others])
    assert [failure for failure, _ in screens if failure] == []
    numbers = [number for _, shown in screens for number in shown]
    assert find_wrong(trace, numbers) == []
    assert len({number.at for number in numbers}) >= 200


def change_headline(data: dict[str, Any]) -> None:
    data["value"] *= 1.001


def change_term(data: dict[str, Any]) -> None:
    (piece, *_) = [piece for piece in data["line"] if isinstance(piece, dict) and "at" in piece]
    piece["value"] += 0.001


def change_window(data: dict[str, Any]) -> None:
    data["numbers"][0][0] += 0.01


def test_a_changed_number_in_an_answer_is_noticed(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    """So the comparison of the other tests can fail; each cell is one that the page does not have yet."""
    trace, page = pellucid.load("abcd").trace("A B"), visit().explore(serve("abcd", "A B"))

    def answer(route: Route, change: Callable[[dict[str, Any]], None]) -> None:
        found = route.fetch()
        data = found.json()
        change(data)
        route.fulfill(response=found, body=json.dumps(data))

    for letter, path, change in (
        ("q", "cell", change_headline),
        ("k", "cell", change_term),
        ("v", "value", change_window),
    ):
        page.route(f"**/api/{path}?*", partial(answer, change=change))
        go(page, why(trace.address(f"blocks.0.attn.{letter}", (0, 0, 1, 1))))
        assert find_wrong(trace, read_numbers(page)), change
        page.unroute_all()
        go(page, why(trace.address("blocks.0.attn.q_proj.weight", (0, 0))))
        assert find_wrong(trace, read_numbers(page)) == []
