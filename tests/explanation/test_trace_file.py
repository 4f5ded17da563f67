"""A trace file keeps every bit, is never half-written, and a damaged one gives one clear error."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import FileError
from pellucid.config import ModelConfig
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.explanation.trace_file import read, write
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, join, train
from pellucid.verification.replay import replay
from tests.reference.models import CONFIGS, quantized_weights, weights

IDS, TARGETS = [[1, 2, 0]], [[-100, 0, 2]]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    write(pellucid.load("abcd").trace("A B", target="C", backward=True), tmp_path / "t.json")
    return tmp_path / "t.json"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_trace_comes_back_bit_for_bit_and_replays(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    tape = join(train(config, weights(config), IDS, TARGETS, "adamw", 2, lr=0.1, clip=1.0))
    write(Trace(tape), tmp_path / "t.json")
    again = read(tmp_path / "t.json")
    assert list(again.tape.values) == list(tape.values)
    for value in tape.values:
        assert np.array_equal(again.tape.values[value], tape.values[value]), value
        assert again.tape.values[value].dtype == tape.values[value].dtype, value
    assert again.tape.aliases == tape.aliases
    done = replay(again)
    assert (done.exact, done.mismatches) == (done.steps, [])


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_trace_of_quantized_weights_stores_their_parts_alone(scheme: str, tmp_path: Path) -> None:
    config = ModelConfig.from_dict(CONFIGS["llama"].to_dict() | {"vocab_size": 1024, "d_model": 8})
    tape = forward(config, quantized_weights(config, scheme), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    write(Trace(tape), tmp_path / "t.json", model="elsewhere")
    data = json.loads((tmp_path / "t.json").read_text("utf-8"))["tensors"]
    assert data["embed.weight"]["recomputed"] is True
    assert "store" in data["embed.weight.integers"]
    again = read(tmp_path / "t.json")
    for value in tape.values:
        assert np.array_equal(again.tape.values[value], tape.values[value]), value
    assert again.tape["embed.weight.integers"].dtype == np.int8
    done = replay(again)
    assert (done.exact, done.mismatches) == (done.steps, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda step: step.update(op="einsum"), "do not fit its shapes|no step that dequantizes"),
        (lambda step: step.update(attrs={"group": 0}), "cannot be recomputed|holds other"),
        (lambda step: step.update({"in": step["in"][:1]}), "cannot be recomputed"),
        (
            lambda step: step.update({"in": [step["in"][1], step["in"][0]]}),
            "cannot be recomputed|its step gives",
        ),
    ],
)
def test_a_weight_that_no_step_can_recompute_is_named(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    config = ModelConfig.from_dict(CONFIGS["llama"].to_dict() | {"vocab_size": 1024, "d_model": 8})
    write(Trace(forward(config, quantized_weights(config), IDS)), tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text("utf-8"))
    change(next(step for step in data["steps"] if step["out"] == "embed.weight"))
    (tmp_path / "t.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match=message):
        read(tmp_path / "t.json")


def test_the_file_has_the_form_that_others_rely_on(toy: Path) -> None:
    data = json.loads(toy.read_text("utf-8"))
    assert (data["format"], data["version"]) == ("pellucid-trace", 1)
    assert data["run"] == {
        "model": "abcd",
        "tokens": ["A", "B"],
        "ids": [[0, 1]],
        "targets": [[-100, 2]],
        "dtype": "float64",
        "path": "reference",
    }
    masked = data["tensors"]["blocks.0.attn.masked"]
    assert masked["shape"] == [1, 1, 2, 2]
    assert masked["axes"] == ["b", "h", "t", "s"]
    assert masked["role"] == "act"
    assert masked["labels"] == {"t": ["A", "B"], "s": ["A", "B"]}
    assert masked["values"][0][0][0][1] is None
    assert masked["special"] == [[[0, 0, 0, 1], "-inf"]]
    step = next(step for step in data["steps"] if step["out"] == "d.blocks.0.attn.masked")
    assert {"phase": "bwd", "op": "softmax_back", "attrs": {}}.items() <= step.items()
    assert step["in"] == ["blocks.0.attn.pattern", "d.blocks.0.attn.pattern"]
    assert [step["i"] for step in data["steps"]] == list(range(len(data["steps"])))
    assert {entry["role"] for entry in data["tensors"].values()} == {"leaf", "act", "grad", "param"}


def test_a_trace_file_is_explained_without_its_model(toy: Path) -> None:
    assert "= e^0.80443 / (e^0.19557" in str(derive(read(toy), "probs[t=1,v=2]"))


def test_large_values_go_to_a_store_beside_the_file(tmp_path: Path) -> None:
    config = CONFIGS["gpt2"]
    many = np.arange(config.context_length)[None] % config.vocab_size
    batch = np.repeat(many, 4096 // many.size + 1, axis=0)
    tape = forward(config, weights(config), batch)
    written, store = write(Trace(tape), tmp_path / "t.json")
    assert written.name == "t.json" and re.fullmatch(r"t\.trace-[0-9a-f]{12}\.safetensors", store.name)
    again = read(tmp_path / "t.json")
    assert all(np.array_equal(again.tape.values[name], value) for name, value in tape.values.items())
    assert replay(again).mismatches == []
    store.write_bytes(b"not safetensors")
    with pytest.raises(FileError, match="safetensors file"):
        read(tmp_path / "t.json")
    store.unlink()
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path / "t.json")


def large(seed: int) -> Trace:
    tape = Tape()
    tape.constant("x", np.random.default_rng(seed).normal(size=5000))
    return Trace(tape, {"model": "x"})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_trace_never_touches_files_that_happen_to_have_a_name_like_its_own(tmp_path: Path) -> None:
    """A model's folder holds model.safetensors, and `-o model.json` is a likely name."""
    for name in ("model.safetensors", "model.trace.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"of the user")
    before = contents(tmp_path)
    assert len(write(large(0), tmp_path / "model.json")) == 2
    assert contents(tmp_path).items() > before.items()
    assert np.array_equal(read(tmp_path / "model.json").tape["x"], large(0).tape["x"])


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": "other"}', b"text"])
@pytest.mark.parametrize("force", [True, False])
def test_what_is_not_a_trace_is_never_replaced(content: bytes, force: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(FileError, match="is not a trace"):
        write(large(0), tmp_path / "config.json", force=force)
    assert contents(tmp_path) == {"config.json": content}


def test_a_trace_is_replaced_only_by_order_and_its_store_with_it(tmp_path: Path) -> None:
    write(large(0), tmp_path / "t.json")
    before = contents(tmp_path)
    with pytest.raises(FileError, match="--force"):
        write(large(1), tmp_path / "t.json")
    assert contents(tmp_path) == before
    write(large(0), tmp_path / "t.json", force=True)
    assert contents(tmp_path) == before
    write(large(1), tmp_path / "t.json", force=True)
    assert len(contents(tmp_path)) == 2 and not before.keys() >= contents(tmp_path).keys()
    assert np.array_equal(read(tmp_path / "t.json").tape["x"], large(1).tape["x"])


def test_a_store_that_another_trace_refers_to_stays(tmp_path: Path) -> None:
    write(large(0), tmp_path / "t.json")
    shutil.copy(tmp_path / "t.json", tmp_path / "copy.json")
    write(large(1), tmp_path / "t.json", force=True)
    assert np.array_equal(read(tmp_path / "copy.json").tape["x"], large(0).tape["x"])


@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_write_leaves_what_was_there(
    existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if existing:
        write(large(0), tmp_path / "t.json")
    before, fsync = contents(tmp_path), os.fsync
    for allowed in range(3):
        left = iter(range(allowed))

        def fail_after(handle: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(28, "No space left on device")
            fsync(handle)

        monkeypatch.setattr(os, "fsync", fail_after)
        with pytest.raises(FileError, match="No space left"):
            write(large(1), tmp_path / "t.json", force=True)
        assert contents(tmp_path) == before


def test_a_trace_of_the_last_version_is_still_read(tmp_path: Path) -> None:
    """Its store had the trace's own name, and its references no relative path."""
    trace, store = write(large(0), tmp_path / "t.json")
    trace.write_text(trace.read_text().replace(store.name, "t.safetensors"))
    store.rename(tmp_path / "t.safetensors")
    assert np.array_equal(read(trace).tape["x"], large(0).tape["x"])


def test_a_changed_number_is_named_where_it_stands(toy: Path) -> None:
    data = json.loads(toy.read_text("utf-8"))
    data["tensors"]["blocks.0.attn.z"]["values"][0][0][1][1] += 1e-9
    toy.write_text(json.dumps(data), "utf-8")
    done = replay(read(toy))
    assert [found.name for found in done.mismatches][:2] == ["blocks.0.attn.z", "blocks.0.attn_out"]
    assert done.mismatches[0].index == (0, 0, 1, 1)


def test_nothing_is_left_behind_where_a_file_cannot_be_written(tmp_path: Path) -> None:
    trace = pellucid.load("abcd").trace("A B")
    with pytest.raises(FileError, match="cannot write"):
        write(trace, tmp_path / "missing" / "t.json")
    (tmp_path / "t.json").mkdir()
    with pytest.raises(FileError, match="is not a trace"):
        write(trace, tmp_path / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


Change = Callable[[dict[str, Any]], Any]
DAMAGE: dict[str, tuple[Change, str]] = {
    "another format": (lambda d: d.update(format="x"), "is not a trace"),
    "a newer format": (lambda d: d.update(version=2), "has trace format 2; this version of Pellucid reads 1"),
    "no steps": (lambda d: d.pop("steps"), "'steps' is missing"),
    "tensors as list": (lambda d: d.update(tensors=[]), "'tensors' is missing"),
    "unknown role": (lambda d: d["tensors"]["probs"].update(role="x"), "role 'x'"),
    "wrong role": (lambda d: d["tensors"]["probs"].update(role="leaf"), "contradicts its steps"),
    "wrong shape": (lambda d: d["tensors"]["probs"].update(shape=[1, 2, 5]), "do not fit its shape"),
    "huge shape": (lambda d: d["tensors"]["probs"].update(shape=[2**50]), "has the shape"),
    "negative shape": (lambda d: d["tensors"]["probs"].update(shape=[-1]), "has the shape"),
    "wrong axes": (lambda d: d["tensors"]["probs"].update(axes=["t"]), "axes ['t'] do not fit"),
    "text for a number": (lambda d: d["tensors"]["loss"].update(values="1"), "has '1' at []"),
    "null without special": (lambda d: d["tensors"]["loss"].update(values=None), "has None at []"),
    "truth for a number": (lambda d: d["tensors"]["loss"].update(values=True), "has True at []"),
    "strange special": (lambda d: d["tensors"]["loss"].update(special=[[[], "big"]]), "special has"),
    "a number too large": (lambda d: d["tensors"]["loss"].update(values=10**400), "too large"),
    "no values": (lambda d: d["tensors"]["loss"].pop("values"), "neither values nor a store"),
    "a store elsewhere": (
        lambda d: d["tensors"]["loss"].update(store="../x.safetensors"),
        "beside the trace",
    ),
    "unknown operation": (
        lambda d: d["steps"][0].update(op="tak"),
        "Did you mean 'take'?",
    ),
    "unknown input": (lambda d: d["steps"][0].update({"in": ["x"]}), "reads 'x' before anything makes it"),
    "a step before its input": (lambda d: d["steps"].reverse(), "before anything makes it"),
    "a step twice": (lambda d: d["steps"].append(d["steps"][0]), "two steps make 'embedded'"),
    "a step less": (lambda d: d["steps"].pop(), "contradicts its steps"),
    "unknown phase": (lambda d: d["steps"][0].update(phase="x"), "has the phase 'x'"),
    "huge attribute": (lambda d: d["steps"][-1].update(attrs={"rows": 2**60}), "that do not fit its shapes"),
    "an outer product too many": (
        lambda d: d["steps"][1]["attrs"].update(spec="abc,de->abcde"),
        "do not fit",
    ),
    "a number too large in an attribute": (
        lambda d: d["steps"][0].update(attrs={"lr": 10**400}),
        "has the attribute lr",
    ),
    "nested attribute": (lambda d: d["steps"][0].update(attrs={"spec": []}), "has the attribute spec"),
    "alias to nothing": (lambda d: d.update(aliases={"x": "y"}), "aliases do not name tensors"),
    "labels as list": (lambda d: d["tensors"]["probs"].update(labels=[]), "labels are not a table"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_gives_one_clear_error(toy: Path, damage: str) -> None:
    change, words = DAMAGE[damage]
    data = json.loads(toy.read_text("utf-8"))
    change(data)
    toy.write_text(json.dumps(data), "utf-8")
    with pytest.raises(FileError) as error:
        read(toy)
    assert words in str(error.value)


NOT_CELLS: list[dict[str, Any]] = [
    {"places": [36], "numbers": [1.0]},
    {"places": [-1], "numbers": [1.0]},
    {"places": [0, 0], "numbers": [1.0, 1.0]},
    {"places": [0], "numbers": []},
    {"places": [0], "numbers": ["1"]},
    {"places": [0], "numbers": [10**400]},
    {"places": [2**63], "numbers": [1.0]},
    {"places": [[0]], "numbers": [1.0]},
    {"places": {"0": 0}, "numbers": [1.0]},
    {"places": [0], "numbers": [1.0], "rows": 2},
    {"places": [0]},
]


def write_edited(file: Path) -> Trace:
    config = CONFIGS["llama"]
    edits = {"blocks.0.attn.pattern": {4: 0.25, 7: -1e-300}, "d.logits": {3: 1 / 3}, "probs@1": {0: 0.5}}
    make_tape = partial(Tape, edits=edits)
    tape = join(train(config, weights(config), IDS, TARGETS, "sgd", 1, lr=0.1, make_tape=make_tape))
    write(Trace(tape), file)
    return Trace(tape)


def test_an_edited_trace_comes_back_and_is_explained_the_same(tmp_path: Path) -> None:
    trace, again = write_edited(tmp_path / "t.json"), read(tmp_path / "t.json")
    assert {"blocks.0.attn.pattern.computed", "d.logits.backpropagated", "probs.computed@1"} < set(
        again.tape.steps
    )
    done = replay(again)
    assert (done.exact, done.mismatches) == (done.steps, [])
    for name in ("blocks.0.attn.pattern", "d.blocks.0.attn.pattern.computed", "d.logits", "probs@1"):
        for index in list(np.ndindex(trace.value(name).shape))[:8]:
            at = trace.address(name, index)
            assert str(derive(trace, at, depth=1)) == str(derive(again, at, depth=1))


@pytest.mark.parametrize("attrs", NOT_CELLS, ids=str)
def test_cells_that_do_not_fit_are_refused(attrs: dict[str, Any], tmp_path: Path) -> None:
    write_edited(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text("utf-8"))
    step = next(step for step in data["steps"] if step["out"] == "blocks.0.attn.pattern")
    step["attrs"] = attrs
    (tmp_path / "t.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(FileError, match="do not fit its shapes"):
        read(tmp_path / "t.json")


def test_a_step_that_cannot_run_is_a_mismatch_not_a_crash(toy: Path) -> None:
    data = json.loads(toy.read_text("utf-8"))
    scores = next(step for step in data["steps"] if step["out"].endswith("scores"))
    scores["op"], scores["attrs"] = "sgd", {"lr": "fast"}
    toy.write_text(json.dumps(data), "utf-8")
    assert "cannot run" in replay(read(toy)).mismatches[0].note


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_truncated_file_is_refused(toy: Path, cut: int) -> None:
    toy.write_bytes(toy.read_bytes()[:cut])
    with pytest.raises(FileError, match="is not JSON"):
        read(toy)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"\x00" * 10, b"[]", b"3"])
def test_what_is_not_a_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(FileError):
        read(tmp_path / "t.json")
