"""`run` computes what `pellucid.trace` computes, and refuses what it refuses."""

from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.server.explorer.session import Session


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "A B"},
        {"ids": [0, 1]},
        {"prompt": "A B", "target": "C"},
        {"prompt": "A B", "target": "C", "backward": True},
        {"prompt": "A B", "target": "C", "update": "sgd"},
        {"prompt": "A B", "target": "C D", "update": "adamw", "lr": 0.25, "steps": 2},
    ],
)
def test_a_run_is_that_of_trace(given: dict[str, Any]) -> None:
    session = Session.open("abcd")
    held = session.get_trace(session.ask("run", **given)["trace"])
    more = {key: value for key, value in given.items() if key not in ("prompt", "ids")}
    wanted = pellucid.trace("abcd", given.get("prompt") or given["ids"], **more)
    assert list(held.trace.tape.steps) == list(wanted.tape.steps)
    for name, value in wanted.tape.values.items():
        assert np.array_equal(held.trace.tape.values[name], value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, UsageError),
        ({"prompt": "A", "ids": [0]}, UsageError),
        ({"prompt": "A", "backward": True}, TokenError),
        ({"prompt": "A", "update": "sgd"}, TokenError),
        ({"prompt": "A", "target": "B", "update": "sdg"}, UsageError),
        ({"prompt": "A", "target": ""}, TokenError),
        ({"prompt": "E"}, TokenError),
        ({"ids": [4]}, PellucidError),
        ({"prompt": "A", "steps": 101}, UsageError),
        ({"prompt": "A", "lr": float("inf")}, UsageError),
    ],
)
def test_a_wrong_run_is_refused_and_leaves_no_trace(
    given: dict[str, Any], error: type[PellucidError]
) -> None:
    session = Session.open("abcd")
    with pytest.raises(error):
        session.ask("run", **given)
    assert not session.summaries and session.ask("session")["busy"] is None


def test_gradients_that_take_next_to_nothing_are_computed_unless_said_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session.open("abcd")
    session.ask("run", prompt="A B", target="C", backward=None)
    monkeypatch.setattr("pellucid.server.explorer.session.SMALL_BYTES", 1)
    session.ask("run", prompt="A B", target="C", backward=None)
    assert [trace["has_gradients"] for trace in session.ask("session")["traces"]] == [True, False]
