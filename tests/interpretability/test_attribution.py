"""Attributions add up to the logit exactly, and the parts are those that a person computes."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.explanation import trace_file
from pellucid.explanation.derive import derive
from pellucid.interpretability.attribution import (
    Attribution,
    compute_attribution,
    list_values,
    trace_attribution,
    view_attribution,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, Runner, SpecificationRunner
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg
from tests.agreement.engines import CHOICES, COVER, IDS, Choice, config_of, fast, text
from tests.reference.models import CONFIGS, check_explained, weights
from tests.report.svg_text import find_faults

E = math.exp(math.sqrt(2))
TO_A, TO_B = 1 / (1 + E), E / (1 + E)
"""The attention of B to A and to itself in `abcd`: scores 0 and 2 / √2."""


def attribute(runner: Runner, ids: list[int], **asked: int) -> Attribution:
    values = runner.run(ids, list_values(runner.config))
    return compute_attribution(values, runner.config, runner.weights, **asked)


def abcd(**choices: str) -> SpecificationRunner:
    """The teaching model, with other choices; a norm's weights are 1."""
    model = pellucid.load("abcd")
    config = replace(model.config, **choices)
    return SpecificationRunner(
        config, {name: model.weights.get(name, np.ones(shape)) for name, shape in config.parameters().items()}
    )


def check_sums(found: Attribution, limit: float = 1e-10) -> None:
    assert abs(found.remainder) <= limit
    assert abs(sum(part.value for part in found.contributions) - found.total) <= limit
    if found.sources is not None:
        assert np.abs(found.sources.sum(2) - found.heads).max() <= limit


def test_parts_add_up_to_the_logit_in_every_variant() -> None:
    for choice in COVER:
        config = config_of(choice)
        assert config
        runner = SpecificationRunner(config, weights(config))
        found = attribute(runner, IDS[0], token=3, against=5, position=3)
        check_sums(found)
        assert found.logit_name == ("logits" if config.logit_cap.is_none else "unembedded")


@pytest.mark.parametrize("choice", COVER[::6], ids=text)
def test_the_engines_attribute_alike(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    wide, narrow = (EngineRunner(fast(config, dtype=dtype)) for dtype in (torch.float64, torch.float32))
    ours = attribute(SpecificationRunner(config, weights(config)), IDS[1], token=2, position=-1)
    theirs = attribute(wide, IDS[1], token=2)
    check_sums(theirs)
    for a, b in zip(ours.contributions, theirs.contributions, strict=True):
        assert (a.name, a.head) == (b.name, b.head)
        assert abs(a.value - b.value) <= 1e-10
    rounded = attribute(narrow, IDS[1], token=2)
    check_sums(rounded, 1e-3)


def test_abcd_by_hand() -> None:
    """B attends to A and B; without a residual connection the head is all there is, and D's row of W_U is
    (1, 0): the first channel of the values, which A has."""
    of_d, of_c = (attribute(abcd(), [0, 1], token=token) for token in (3, 2))
    assert of_d.heads == pytest.approx(np.array([[TO_A]]), abs=1e-15)
    assert of_d.sources == pytest.approx(np.array([[[TO_A, 0]]]), abs=1e-15)
    assert of_c.sources == pytest.approx(np.array([[[0, TO_B]]]), abs=1e-15)
    assert [(part.name, part.value) for part in of_c.contributions if part.head is None] == [("embedded", 0)]
    difference = attribute(abcd(), [0, 1], token=2, against=3)
    assert difference.total == pytest.approx(TO_B - TO_A, abs=1e-15)


def test_a_norm_divides_each_part_by_the_recorded_deviation() -> None:
    """The stream of B is (TO_A, 1 + TO_B): 1 from the embedding, the rest from the head."""
    found = attribute(abcd(residual="plain", norm="rms_norm"), [0, 1], token=2)
    # the norm before attention makes A (√2, 0) and B (0, √2): scores 0 and 4 / √2, values √2 times as large
    to_b = 1 / (1 + math.exp(-4 / math.sqrt(2)))
    head = math.sqrt(2) * np.array([1 - to_b, to_b])
    stream = np.array([0, 1]) + head
    r = 1 / math.sqrt((stream**2).mean() + 1e-5)
    parts = {part.label: part.value for part in found.contributions}
    assert parts == pytest.approx({"embedded": r, "L0 head 0": head[1] * r}, rel=1e-4)  # eps of the pre-norm
    check_sums(found, 1e-14)


def test_layer_norm_takes_the_mean_from_each_part() -> None:
    """Two channels less their mean are (d, −d) / 2 for a difference d: the token C reads the second."""
    found = attribute(abcd(residual="plain", norm="layer_norm"), [0, 1], token=2)
    runner = abcd(residual="plain", norm="layer_norm")
    seen = runner.run([0, 1], ["embedded", "blocks.0.attn.head_out", "final_norm.rstd"])
    r, x = seen["final_norm.rstd"][0, 1, 0], seen["embedded"][0, 1]
    h = seen["blocks.0.attn.head_out"][0, 0, 1]
    by_hand = {"embedded": (x[1] - x[0]) / 2 * r, "L0 head 0": (h[1] - h[0]) / 2 * r}
    assert {part.label: part.value for part in found.contributions} == pytest.approx(by_hand, abs=1e-12)


def plant_copying_head() -> SpecificationRunner:
    """Channels 0 to 3 hold the token, 4 to 7 the position. Head 1 attends to the position before and writes
    its token, times 5; head 0 writes nothing."""
    config = ModelConfig(
        vocab_size=4,
        context_length=4,
        n_layer=1,
        n_head=2,
        d_model=8,
        positions="learned",
        norm="none",
        mlp="none",
        unembedding="linear",
    )
    values = {name: np.zeros(shape) for name, shape in config.parameters().items()}
    one = np.eye(8)
    values["embed.weight"], values["positions.weight"] = one[:4], one[4:]
    values["unembed.weight"] = one[:4].copy()
    values["blocks.0.attn.q_proj.weight"][4:] = 80 * np.vstack([one[5:], one[:1] * 0])
    values["blocks.0.attn.k_proj.weight"][4:] = one[4:]
    values["blocks.0.attn.v_proj.weight"][4:] = one[:4]
    values["blocks.0.attn.o_proj.weight"][:4, 4:] = 5 * np.eye(4)
    return SpecificationRunner(config, values)


def test_the_head_that_copies_has_the_logit_and_the_token_before_is_its_source() -> None:
    found = attribute(plant_copying_head(), [2, 0, 3], token=0)
    assert found.heads == pytest.approx(np.array([[0.0, 5.0]]), abs=1e-6)
    assert found.sources is not None
    assert found.sources[0, 1] == pytest.approx(np.array([0.0, 5.0, 0.0]), abs=1e-6)
    assert found.largest(1)[0].label == "L0 head 1"
    own = attribute(plant_copying_head(), [2, 0, 3], token=3)
    assert {part.label: round(part.value, 6) for part in own.contributions if abs(part.value) > 1e-6} == {
        "embedded": 1.0
    }


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("gpt2", {}),
        ("llama", {}),
        ("llama", {"placement": "post"}),
        ("llama", {"placement": "sandwich", "residual": "scaled", "norm": "layer_norm"}),
    ],
)
def test_every_step_of_an_attribution_is_explained(
    name: str, choices: dict[str, str], tmp_path: Path
) -> None:
    config = replace(CONFIGS[name], **choices)
    prompted = PromptedModel(name, SpecificationRunner(config, weights(config)), (0, 1, 3))
    trace = trace_attribution(prompted, against=2, position=1)
    check_explained(trace.tape)
    trace_file.write(trace, tmp_path / "t.json")
    again = trace_file.read(tmp_path / "t.json")
    found = derive(again, "attribution.heads[l=1,h=1]", depth=30, most=None)
    names = set()
    waiting = [found]
    while waiting:
        node = waiting.pop()
        names.add(node.name)
        waiting += node.operands
    assert {"ids", "embed.weight", "attribution.token"} <= names


def test_a_view_lists_the_largest_parts_and_the_exact_rest() -> None:
    config = CONFIGS["gpt2"]
    prompted = PromptedModel(
        "gpt2", SpecificationRunner(config, weights(config)), (0, 1, 3), "token {}".format
    )
    view = view_attribution(prompted, top=3)
    rows = view.tables[0].rows
    *parts, others, total = [row[1] for row in rows]
    assert len(parts) == 3 and "others" in str(rows[3][0])
    assert isinstance(others, float) and isinstance(total, float)
    assert sum(float(part or 0) for part in parts) + others == pytest.approx(total, abs=1e-12)
    assert (
        view.data["token"]
        == SpecificationRunner(config, weights(config)).run([0, 1, 3], ["logits"])["logits"][0, -1].argmax()
    )
    assert not find_faults(write_svg(make_figure("", *view.plots)))


def test_a_soft_cap_is_said() -> None:
    config = CHOICES["logit_cap/tanh"]
    view = view_attribution(PromptedModel("x", SpecificationRunner(config, weights(config)), (1, 2)))
    assert any("unembedded" in note for note in view.notes)
    assert any("unembedded" in str(row[0]) for row in view.tables[0].rows)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"token": 99}, TokenError),
        ({"token": 1, "against": -1}, TokenError),
        ({"token": 1, "against": 1}, UsageError),
        ({"token": 1, "position": 3}, UsageError),
        ({"token": 1, "position": -4}, UsageError),
    ],
)
def test_what_cannot_be_attributed_is_refused(asked: dict[str, int], error: type[PellucidError]) -> None:
    with pytest.raises(error):
        attribute(abcd(), [0, 1, 2], **asked)


def test_a_logit_that_is_not_finite_is_refused() -> None:
    runner = abcd()
    for scale in (np.nan, 1e200):
        weights = {**runner.weights, "embed.weight": scale * runner.weights["embed.weight"]}
        with np.errstate(all="ignore"), pytest.raises(UsageError, match="finite"):
            attribute(SpecificationRunner(runner.config, weights), [0, 1], token=2)


@pytest.mark.skipif(not os.environ.get("PELLUCID_SMOLLM2"), reason="PELLUCID_SMOLLM2 names no file")
def test_a_real_model_in_both_engines() -> None:
    """float64 adds up exactly, and float32 as far as it rounds."""
    model = pellucid.load(os.environ["PELLUCID_SMOLLM2"])
    ids = model.encode("The animal didn't cross the street because it was too")
    exact = attribute(SpecificationRunner(model.config, model.weights), ids, token=1869)
    check_sums(exact)
    rounded = attribute(EngineRunner(model.module), ids, token=1869)
    check_sums(rounded, 1e-4)
    assert np.abs(rounded.heads - exact.heads).max() < 1e-4
