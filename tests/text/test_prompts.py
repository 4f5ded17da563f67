"""Several prompts are one batch: each as it is alone, and the loss is the mean over the targets of all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_trace, write_trace
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.model import Model
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.text.prompts import check_ids
from pellucid.verification.foreign_values import recorded_values
from pellucid.verification.judge_run import judge_run
from pellucid.verification.replay import replay
from tests.agreement.engines import DIFFERENT
from tests.cli.commands import Shell
from tests.reference.models import weights

PROMPTS = [[1, 3, 1, 5, 0, 2], [4], [0, 2, 4]]
TARGETS = [[3, 5], [6, 2], [1]]
MASKS = {name: config for name, config in DIFFERENT.items() if name.startswith("mask/")}


def make(config: ModelConfig) -> Model:
    nowhere = Provenance(Path("/nowhere"), "memory", "pellucid", {}, 0)
    return Model(Pretrained("made", config, weights(config), None, nowhere), dtype="float64")


def part(trace: Trace, name: str, row: int, length: int) -> Array:
    """Returns a value of one row at its own positions."""
    index = {"b": slice(row, row + 1), "t": slice(length), "s": slice(length)}
    value = trace.value(name)
    axes = trace.about(name).axes
    where = [
        slice(None) if size == 1 and axis != "b" else index.get(axis, slice(None))
        for axis, size in zip(axes, value.shape, strict=True)
    ]
    return value[tuple(where)]


@pytest.mark.parametrize("config", DIFFERENT.values(), ids=DIFFERENT)
def test_each_prompt_of_a_batch_has_the_values_that_it_has_alone(config: ModelConfig) -> None:
    model = make(config)
    batch = model.trace(PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        alone = model.trace(prompt)
        for name in ("embedded", "logits", "probs", "blocks.0.resid_mid", "blocks.1.resid_post"):
            name = alone.tape.resolve(name)
            wanted = alone.value(name)
            np.testing.assert_allclose(
                part(batch, name, row, len(prompt)), wanted, atol=1e-12 * max(1, np.abs(wanted).max())
            )


@pytest.mark.parametrize("config", MASKS.values(), ids=MASKS)
def test_every_value_at_a_token_is_what_it_is_without_padding(config: ModelConfig) -> None:
    model = make(config)
    batch = model.trace(PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        alone = model.trace(prompt)
        for name in alone.tape.values:
            found = part(batch, name, row, len(prompt))
            np.testing.assert_allclose(found, alone.value(name), atol=1e-12, err_msg=name)


@pytest.mark.parametrize("config", DIFFERENT.values(), ids=DIFFERENT)
def test_the_gradients_of_a_batch_are_those_of_torch(config: ModelConfig) -> None:
    model = make(config)
    trace = model.trace(PROMPTS, target=TARGETS, backward=True)
    rows = [prompt + goal[:-1] for prompt, goal in zip(PROMPTS, TARGETS, strict=True)]
    lengths, longest = [len(row) for row in rows], max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    wanted = torch.full(ids.shape, IGNORE_INDEX)
    for row, (prompt, goal) in enumerate(zip(PROMPTS, TARGETS, strict=True)):
        wanted[row, len(prompt) - 1 : len(prompt) - 1 + len(goal)] = torch.tensor(goal)
    padding = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    logits = model.module(ids, padding=padding)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    assert float(trace.tape["loss"]) == pytest.approx(loss.item(), rel=1e-12)
    parameters = dict(model.module.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for name, grad in zip(parameters, grads, strict=True):
        if grad is not None and f"d.{name}" in trace.tape:
            largest = max(1.0, float(grad.abs().max()))
            np.testing.assert_allclose(
                trace.tape[f"d.{name}"], grad.numpy(), atol=1e-10 * largest, err_msg=name
            )


def test_one_prompt_is_the_tape_of_its_ids_alone_bit_for_bit() -> None:
    model = make(DIFFERENT["mask/causal"] if "mask/causal" in DIFFERENT else next(iter(DIFFERENT.values())))
    wanted = forward(model.config, model.weights, [PROMPTS[0]])
    for prompt in (PROMPTS[0], [PROMPTS[0]]):
        trace = model.trace(prompt)
        assert list(trace.tape.values) == list(wanted.values) and set(trace.labels) == {"t", "s", "v"}
        for name, value in wanted.values.items():
            np.testing.assert_array_equal(trace.tape[name], value)


def test_rows_of_one_length_need_no_padding() -> None:
    model = pellucid.load("abcd")
    assert (model.trace(["A B", "C D"]).tape["mask"] == model.trace("A B").tape["mask"]).all()


def test_addresses_and_labels_name_the_prompt() -> None:
    model = pellucid.load("abcd")
    trace = model.trace(["A B", "C"], target=["C", "D"])
    assert trace.labels["b"] == ["A B", "C"] and trace.labels["t"] == ["A|C", "B"]
    found = pellucid.explain(trace, at="probs[b=C,t=0,v=D]")
    assert found.address == "probs[b=1,t=0,v=3]"
    alone = model.explain("C", at="probs[v=D]")
    assert found.value == alone.value


def test_a_position_of_one_prompt_has_the_token_of_that_prompt(tmp_path: Path) -> None:
    model = pellucid.load("abcd")
    trace = model.trace(["A B", "C", "D", "D", "D"])  # too many for a label of all
    write_trace(model, trace, tmp_path / "t.json")
    for one in (trace, read_trace(tmp_path / "t.json")):
        assert one.texts("logits", "t") == [None, None]
        assert one.texts("logits", "t", (1, None, None)) == ["C", "(padding)"]
        assert one.label("blocks.0.attn.pattern", "s", 1, (0, 0, 1, 1)) == "B"
        assert pellucid.explain(one, at="logits[b=1,t=C,v=0]").address == "logits[b=1,t=0,v=0]"
        assert "t=0 C" in str(pellucid.explain(one, at="logits[b=1,t=0,v=0]"))
        tables = str(pellucid.explain(one, at="logits[v=0]")), str(pellucid.explain(one, at="logits"))
        assert "t=0 C" not in tables[0] and "t=0 C" in tables[1] and "t=1 (padding)" in tables[1]
    with pytest.raises(pellucid.AddressError):
        pellucid.explain(trace, at="logits[b=0,t=C,v=0]")


def test_a_trace_file_with_other_rows_than_its_values_is_shown_without_their_tokens() -> None:
    trace = pellucid.trace("abcd", ["A B", "C"])
    for ids in (None, 3, [[0, 1]], [["A"]], [[99, -1], [2]], [], [[], []]):
        shown = str(pellucid.explain(replace(trace, run=trace.run | {"ids": ids}), at="logits"))
        assert "b=1 C" in shown


def test_a_batch_survives_its_file_and_replays(tmp_path: Path) -> None:
    model = pellucid.load("abcd")
    write_trace(
        model, model.trace(["A B", "C"], target=["C", "D A"], update="adamw", lr=0.1), tmp_path / "t.json"
    )
    again = read_trace(tmp_path / "t.json")
    assert replay(again).mismatches == [] and again.labels["b"] == ["A B", "C"]


def test_a_batch_of_the_fast_engine_is_noise() -> None:
    trace = pellucid.load("abcd").trace(["A B", "C"], target=["C", "D A"], backward=True, path="eager")
    assert judge_run(trace, recorded_values(trace))


@pytest.mark.parametrize("target", ["C", ["C"], ["C", "D", "A"], [1, 2]])
def test_several_prompts_need_a_target_each(target: object) -> None:
    with pytest.raises(UsageError, match="2 prompts"):
        pellucid.load("abcd").trace(["A B", "C"], target=target)  # type: ignore[arg-type]


def test_one_prompt_alone_has_no_list_of_targets() -> None:
    with pytest.raises(UsageError, match="one target"):
        pellucid.load("abcd").trace("A B", target=["C"])


def test_an_empty_prompt_or_target_in_a_batch_is_refused() -> None:
    for prompts, targets in ((["A", ""], None), (["A", "B"], ["C", ""]), ([], None)):
        with pytest.raises(TokenError):
            pellucid.load("abcd").trace(prompts, target=targets)


class Unlisted(Sequence[int]):
    """As many ids as a range may have: reading more than the first takes the memory of the machine."""

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, place: Any) -> Any:
        assert place == 0, "the ids were listed"
        return 1


class UnlistedArray:
    shape = (10**9,)

    def tolist(self) -> list[int]:
        raise AssertionError("the ids were listed")


@pytest.mark.parametrize("ids", [Unlisted(), UnlistedArray()], ids=["list", "array"])
@pytest.mark.parametrize("rows", [False, True], ids=["one", "several"])
def test_more_ids_than_fit_are_refused_before_they_are_listed(ids: Any, rows: bool) -> None:
    model, given = pellucid.load("abcd"), [[1], ids] if rows else ids
    calls = [
        lambda: model.logits(given),
        lambda: model.trace(given),
        lambda: model.trace([[1], [2]] if rows else [1], target=given),
        lambda: model.explain(given, "logits"),
        lambda: model.generate(given),
        lambda: forward(model.config, model.weights, given),
        lambda: check_ids(ids, "prompt"),
        lambda: model.encode(ids),
        lambda: model.score(ids),
        lambda: next(model.generate_ids(ids)),
        lambda: next(model.decode_stream(ids, [1])),
        lambda: model.generate([1], 1, banned_tokens=range(10**30)),
    ]
    for call in calls:
        with pytest.raises(PellucidError, match=r"tokens.* do not fit|at most"):
            call()


def test_the_commands_take_several_prompts_and_targets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Shell(capsys, monkeypatch)
    batch = ("abcd", "A B", "C", "--target", "C", "--target", "D")
    assert shell("explain", *batch, "--at", "loss").out.startswith("loss = 1.2569")
    assert shell("trace", *batch, "--backward", "-o", tmp_path / "t.json").code == 0
    assert "b=1 C" in shell("explain", tmp_path / "t.json", "--at", "d.logits[b=1]").out
    assert "2 prompts" in shell("explain", *batch[:-2], "--at", "loss").err
