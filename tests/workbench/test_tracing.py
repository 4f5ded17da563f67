"""Every number of a run: the specification's, or those of a path of the fast engine on its program."""

import functools
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.errors import AskedWrongly, PellucidError, TokenError
from pellucid.model.taps import record
from pellucid.workbench import Model
from tests.interop.gguf import made_up

IDS = [3, 1, 4, 1, 5]


def tiny(dtype: str = "float32", **more: Any) -> Model:
    return Model(made_up.model(made_up.LLAMA | more), dtype=dtype)


def test_a_trace_says_what_was_run() -> None:
    model = tiny("bfloat16")
    run = model.trace("the cat", target=" sat").run
    assert run["model"] == "made up"
    assert run["ids"][0] == (model.ids("the cat") + model.tokenizer.encode(" sat"))[:-1]
    assert run["tokens"] == [model.token(id) for id in run["ids"][0]]
    assert (run["path"], run["dtype"]) == ("reference", "float64")


@pytest.mark.parametrize("path", ["eager", "fused"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_path_of_the_fast_engine_shows_its_own_numbers(dtype: str, path: str) -> None:
    model = tiny(dtype)
    trace = model.trace(IDS, path=path)
    assert (trace.run["path"], trace.run["dtype"]) == (path, dtype)
    with torch.no_grad(), record(fused=path == "fused") as seen:
        model.module(torch.tensor([IDS]))
    assert len(seen) > 20
    for name, value in seen.arrays().items():
        if name != "mask":
            assert np.array_equal(trace.value(name), value), name
    assert not np.array_equal(trace.value("logits"), model.trace(IDS).value("logits"))
    embed = model.module.embed.weight.detach().double().numpy()
    assert np.array_equal(trace.value("embed.weight"), embed)


def test_the_compiled_path_shows_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced by the compiler's front end; tests/agreement/test_paths.py waits for the whole of it."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    model = tiny()
    trace = model.trace(IDS, path="compiled")
    assert (trace.run["path"], trace.run["dtype"]) == ("compiled", "float32")
    logits = trace.value("logits")
    assert logits == pytest.approx(model.trace(IDS).value("logits"), abs=1e-4)
    assert np.array_equal(logits, logits.astype(np.float32))


def test_gradients_are_those_of_the_path() -> None:
    model = tiny("float64")
    ours, fast = (
        model.trace(IDS[:3], target=IDS[3:], backward=True, path=path) for path in ("reference", "eager")
    )
    name = "d.blocks.0.attn.q_proj.weight"
    assert np.array_equal(fast.value(name), fast.tape[name])
    assert fast.value(name) == pytest.approx(ours.value(name), rel=1e-9, abs=1e-12)
    assert not np.array_equal(fast.value(name), ours.value(name))
    assert all(p.grad is None for p in model.module.parameters())


def test_a_number_of_any_path_can_be_explained() -> None:
    model = tiny("bfloat16")
    found = model.explain(IDS, "blocks.0.attn.q[h=1,t=2,d=3]", path="eager", depth=1)
    assert float(found.value) == float(model.trace(IDS, path="eager").value("blocks.0.attn.q")[0, 1, 2, 3])
    assert str(found).startswith("blocks.0.attn.q[h=1,t=2,d=3] = ")


def test_explaining_with_a_target_reaches_the_gradients() -> None:
    model = pellucid.load("abcd")
    assert str(model.explain("A B", "d.logits[t=1,v=2]", target="C")).startswith("d.logits[t=1,v=2] = ")
    assert str(model.explain("A B", "loss@1", target="C", update="sgd", lr=1.0)).startswith("loss@1 = ")


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"path": "fast"}, AskedWrongly, "no path called 'fast'; have .*eager, fused, compiled"),
        (
            {"path": "eager", "update": "sgd", "target": [1]},
            AskedWrongly,
            "an update is taken by the specification",
        ),
        ({"path": "eager", "backward": True}, TokenError, "a gradient needs a loss"),
        (
            {"path": "compiled", "backward": True, "target": [1]},
            AskedWrongly,
            "compiled code shows its forward",
        ),
        ({"target": []}, TokenError, "the target is empty"),
        ({"ids": [272]}, PellucidError, "ids go from 0 to 271; got 272"),
        ({"ids": [-1]}, PellucidError, "ids go from 0 to 271; got -1"),
        ({"ids": [272], "path": "eager"}, PellucidError, "ids go from 0 to 271; got 272"),
        ({"ids": [1] * 65}, TokenError, "65 tokens do not fit this model's context of 64"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_words(
    more: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tiny().trace(more.pop("ids", IDS), **more)
