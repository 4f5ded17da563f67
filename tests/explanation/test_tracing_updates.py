"""The settings of an update by name: those of a recipe's optimizer, with the same defaults."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import UsageError
from pellucid.explanation.tracing import read_trace
from pellucid.model import Model
from pellucid.parts import find, kinds
from pellucid.reference.optimizers import RULES, update
from pellucid.reference.training import forward
from tests.cli.commands import Shell

RULE_NAMES = kinds("optimizers")


@pytest.fixture(scope="module")
def model() -> Model:
    """A model with a norm, biases and a hidden matrix, so that the rules treat parameters differently."""
    config = pellucid.ModelConfig.from_dict(
        {
            "vocab_size": 4,
            "context_length": 8,
            "n_layer": 1,
            "n_head": 2,
            "d_model": 8,
            "biases": ["qkv"],
            "unembedding": "linear",
        }
    )
    return Model.from_config(config, tokenizer=pellucid.load("abcd").tokenizer, dtype="float64")


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_a_rule_has_the_defaults_of_a_recipe(rule: str, model: Model) -> None:
    found = model.trace("A B", target="C", update=rule, lr=0.25)
    tape = forward(model.config, model.weights, [[0, 1]], [[-100, 2]])
    tape.backward(tape.ref("loss"))
    update(tape, find("optimizers", rule)(lr=0.25))  # type: ignore[arg-type, call-arg]
    for name in model.config.parameters():
        np.testing.assert_array_equal(found.tape[f"{name}@1"], tape[f"{name}@1"], err_msg=name)


def settings_of(rule: str) -> list[tuple[str, Any]]:
    """Returns each setting with a value that is not its default."""
    part = find("optimizers", rule)()
    others = {"beta2_start": 0.5, "beta2_warmup": 3, "adam_beta2_start": 0.5, "adam_beta2_warmup": 3}
    return [
        (field.name, others.get(field.name, 3 if field.type is int else getattr(part, field.name) / 2))
        for field in dataclasses.fields(part)
        if field.name != "lr"
    ]


@pytest.mark.parametrize(
    ("rule", "setting", "value"), [(rule, *setting) for rule in RULE_NAMES for setting in settings_of(rule)]
)
def test_every_setting_has_its_name_and_changes_the_update(
    rule: str, setting: str, value: Any, model: Model
) -> None:
    both = {setting: value}
    if "beta2_" in setting:  # a warmup needs its start and its length
        prefix = setting.partition("beta2_")[0]
        both = {f"{prefix}beta2_start": 0.5, f"{prefix}beta2_warmup": 3}
    run: dict[str, Any] = {"target": "C", "update": rule, "lr": 0.1, "steps": 2}
    plain, changed = model.trace("A B", **run), model.trace("A B", **run, settings=both)
    last = [f"{name}@2" for name in model.config.parameters()]
    assert any(not np.array_equal(plain.tape[name], changed.tape[name]) for name in last)
    if setting != "steps":  # as a keyword it is the number of updates
        same = model.trace("A B", **run, **both)
        assert all(np.array_equal(same.tape[name], changed.tape[name]) for name in last)


def test_only_and_freeze_choose_the_parameters(model: Model) -> None:
    run = {"target": "C", "update": "sgd", "lr": 0.1}
    trace = model.trace("A B", **run, only=["*.q_proj.*", "*.k_proj.*"], freeze=["*.bias"])  # type: ignore[arg-type]
    changed = [
        name
        for name in model.config.parameters()
        if name in trace.tape.values and f"{name}@1" in trace.tape.values
    ]
    assert changed == ["blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight"]


def test_smoothing_and_clipping_are_torchs(model: Model) -> None:
    trace = model.trace("A B", target="C", update="sgd", lr=0.1, clip=0.01, smoothing=0.2)
    loss = torch.nn.functional.cross_entropy(
        model.logits([0, 1])[-1:], torch.tensor([2]), label_smoothing=0.2
    )
    assert float(trace.tape["loss"]) == pytest.approx(float(loss), rel=1e-12)
    norm = np.sqrt(sum((trace.tape[f"d.{name}.clipped"] ** 2).sum() for name in model.config.parameters()))
    assert norm == pytest.approx(0.01, rel=1e-4)


def test_the_fast_engine_smooths_too(model: Model) -> None:
    runs = (model.trace("A B", target="C", smoothing=0.2, path=path) for path in ("reference", "eager"))
    assert len({round(float(run.tape["loss"]), 12) for run in runs}) == 1


def test_a_negative_rate_climbs(model: Model) -> None:
    trace = model.trace("A B", target="C", update="sgd", lr=-0.1)
    assert trace.tape["loss@1"] > trace.tape["loss"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"update": "adamw", "beta": 0.9}, "beta2"),
        ({"update": "sgd", "beta": 0.9}, "sgd"),
        ({"update": "adamw", "beta2": 1.0}, "beta2"),
        ({"update": "adamw", "beta2_warmup": 2.5}, "beta2_warmup"),
        ({"update": "adamw", "clip": 0}, "clip"),
        ({"update": "adamw", "only": [5]}, "only"),
        ({"update": "adamw", "freeze": {"x"}}, "freeze"),
        ({"smoothing": -0.1}, "smoothing"),
        *[({name: value}, name) for name, value in {"lr": 1, "only": "*", "clip": 1, "steps": 2}.items()],
    ],
)
def test_a_wrong_setting_is_refused_by_name(given: dict[str, Any], words: str, model: Model) -> None:
    with pytest.raises(UsageError, match=words):
        model.trace("A B", target="C", **given)


def test_the_help_lists_every_rule_and_the_commands_take_every_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Shell(capsys, monkeypatch)
    monkeypatch.setenv("COLUMNS", "300")
    assert sorted(RULES) == RULE_NAMES and len(RULES) == 7
    for command in ("explain", "trace"):
        assert ", ".join(RULE_NAMES) in shell(command, "--help").out
    options = [
        "--update",
        "adamw",
        "--lr",
        "0.1",
        "--set",
        "beta2=0.9",
        "--set",
        "eps=1e-3",
        "--clip",
        "1",
        "--smoothing",
        "0.1",
    ]
    patterns = ["--only", "*embed.*", "--only", "blocks.*", "--freeze", "embed.*"]
    found = shell("trace", "abcd", "A B", "--target", "C", *options, *patterns, "-o", tmp_path / "t.json")
    assert found.code == 0
    wanted = pellucid.trace(
        "abcd", "A B", target="C", update="adamw", lr=0.1, beta2=0.9, eps=1e-3, clip=1, smoothing=0.1,
        only=["*embed.*", "blocks.*"], freeze="embed.*",
    )  # fmt: skip
    again = read_trace(tmp_path / "t.json").tape
    assert list(again.values) == list(wanted.tape.values)
    assert all(np.array_equal(again[name], value) for name, value in wanted.tape.values.items())


@pytest.mark.parametrize(("wrong", "right"), [("tarjet", "target"), ("depht", "depth")])
def test_a_misspelled_argument_is_not_taken_for_a_setting_of_an_update(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=f"'{wrong}'.*'{right}'"):
        pellucid.explain("abcd", "A B", at="probs", **{wrong: "C"})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'beta2'.*update"):
        pellucid.trace("abcd", "A B", beta2=0.9)
