"""`heads` draws every attention pattern: a byte is a share, a pooled byte the largest one of its field."""

import base64

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig, preset
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


def read_picture(found: dict[str, object], layer: int) -> np.ndarray:
    data = base64.b64decode(found["pictures"][layer])  # type: ignore[index]
    return np.frombuffer(data, np.uint8).reshape(found["heads"], found["rows"], found["cols"])  # type: ignore[call-overload]


def make_session(*patterns: np.ndarray) -> Session:
    tape = Tape()
    for layer, pattern in enumerate(patterns):
        tape.constant(f"blocks.{layer}.attn.pattern", pattern)
    return Session(trace=Trace(tape))


def test_a_byte_is_255_times_the_share() -> None:
    session = Session.open("abcd")
    pattern = session.run(RunRequest("A B")).trace.value("blocks.0.attn.pattern")
    found = session.ask("heads")
    assert (read_picture(dict(found), 0) == np.rint(255 * pattern[0])).all()
    assert (found["patterns"], found["labels"]) == (["blocks.0.attn.pattern"], ["A", "B"])
    assert not found["is_pooled"]


@pytest.mark.parametrize("size", [32, 33, 64, 100])
def test_a_pooled_byte_is_the_largest_of_its_field(size: int) -> None:
    pattern = np.random.default_rng(0).random((2, 3, size, size))
    found = dict(make_session(pattern).ask("heads", b=1))
    edges = [i * size // found["rows"] for i in range(found["rows"] + 1)]
    picture = read_picture(found, 0)
    assert picture.shape == (3, 32, 32) and found["is_pooled"] == (size > 32)
    for r in range(32):
        for c in range(32):
            field = pattern[1, :, edges[r] : edges[r + 1], edges[c] : edges[c + 1]]
            assert (picture[:, r, c] == np.rint(255 * field.max((1, 2)))).all()


def test_pictures_of_many_heads_are_pooled_until_they_fit() -> None:
    found = make_session(*[np.ones((1, 64, 40, 40))] * 40).ask("heads")
    assert sum(map(len, found["pictures"])) <= 420_000 and found["is_pooled"]
    assert (read_picture(dict(found), 39) == 255).all()


def test_several_prompts_have_pictures_of_their_own() -> None:
    session = Session.open("abcd")
    session.run(RunRequest(["A B", "C"]))  # type: ignore[arg-type]
    one, other = session.ask("heads", b=0), session.ask("heads", b=1)
    assert one["labels"] == ["A", "B"] and other["labels"] == ["C", "(padding)"]
    assert one["pictures"] != other["pictures"]
    with pytest.raises(UsageError, match="b=2"):
        session.ask("heads", b=2)


def make_model_session(attention: object) -> Session:
    config = ModelConfig.from_dict(preset("abcd").to_dict() | {"attention": attention})
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=shape) for name, shape in config.parameters().items()}
    return Session(trace=Trace(forward(config, weights, np.array([[0, 1, 2]]))))


def test_linear_attention_shows_its_normalized_kernel() -> None:
    session = make_model_session("linear_elu")
    tape = session.get_trace(None).trace.tape
    kernel = tape["blocks.0.attn.kernel"]
    pattern = kernel / kernel.sum(-1, keepdims=True)
    assert (read_picture(dict(session.ask("heads")), 0) == np.rint(255 * pattern[0])).all()


def test_attention_without_a_whole_pattern_says_what_there_is_instead() -> None:
    with pytest.raises(UsageError, match=r"blocks\.0\.attn\.tiles\.0\.scores"):
        make_model_session({"kind": "tiled", "tile": 2}).ask("heads")
    tape = Tape()
    tape.constant("x", 1.0)
    with pytest.raises(UsageError):
        Session(trace=Trace(tape)).ask("heads")


def test_numbers_that_are_not_finite_are_drawn_as_nothing_or_all() -> None:
    pattern = np.array([[[[np.nan, np.inf], [-np.inf, 0.5]]]])
    assert read_picture(dict(make_session(pattern).ask("heads")), 0).tolist() == [[[0, 255], [0, 128]]]
