"""Both engines record the same values, and a patch means the same in both."""

import numpy as np
import pytest
import torch

from pellucid.base.errors import TokenError, UsageError
from pellucid.engine.lora import adapt
from pellucid.interpretability.runner import EngineRunner, Patch, SpecificationRunner
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from tests.agreement.engines import CHOICES, COVER, DIFFERENT, IDS, Choice, config_of, fast, text
from tests.reference.models import weights

HEADS = ["blocks.*.attn.head_out", "blocks.*.attn_out", "logits"]
PATCHES = [
    Patch("blocks.0.attn.head_out", 0.0, (slice(None), 1)),
    Patch("blocks.1.resid_pre", 0.5, (0, 2)),
    Patch("embedded", np.arange(16.0), (1, 0)),
]


@pytest.mark.parametrize("choice", COVER[::4], ids=text)
def test_both_engines_agree_on_heads_and_on_patched_runs(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    runners = SpecificationRunner(config, weights(config)), EngineRunner(fast(config))
    for patches, record in (([], HEADS), (PATCHES, ["logits"])):
        ours, theirs = (runner.run(IDS, record, patches) for runner in runners)
        assert ours.keys() == theirs.keys()
        assert not find_first_mismatch(theirs, ours, BETWEEN_ENGINES)


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_heads_add_up_to_the_attention_output(name: str) -> None:
    config = DIFFERENT[name]
    values = weights(config)
    seen = EngineRunner(fast(config)).run(IDS, HEADS)
    for layer in range(config.n_layer):
        bias = values.get(f"blocks.{layer}.attn.o_proj.bias", 0.0)
        total = seen[f"blocks.{layer}.attn.head_out"].sum(1) + bias
        assert np.abs(total - seen[f"blocks.{layer}.attn_out"]).max() < 1e-10


def test_heads_are_computed_only_where_they_are_named() -> None:
    runner = EngineRunner(fast(CHOICES["norm/rms_norm"]))
    assert "blocks.0.attn.head_out" not in runner.run(IDS, ["*"])
    assert runner.run(IDS, ["blocks.0.attn.head_out"])["blocks.0.attn.head_out"].shape == (2, 4, 5, 16)


def test_a_zeroed_residual_stream_leaves_nothing_of_the_prompt() -> None:
    config = CHOICES["norm/rms_norm"]
    for runner in (SpecificationRunner(config, weights(config)), EngineRunner(fast(config))):
        logits = runner.run(IDS, ["logits"], [Patch("blocks.1.resid_post", 0.0)])["logits"]
        assert np.array_equal(logits, np.zeros((2, 5, 7)))


def test_the_weights_of_an_adapted_module_are_those_that_it_applies() -> None:
    config = CHOICES["norm/rms_norm"]
    module = adapt(fast(config), ["blocks.*.attn.*_proj"], rank=2, scale=3.0)
    for name, value in module.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(value, generator=torch.Generator().manual_seed(0))
    runner = EngineRunner(module)
    merged = SpecificationRunner(config, runner.weights)
    theirs, ours = (each.run(IDS, HEADS) for each in (runner, merged))
    assert not find_first_mismatch(theirs, ours, BETWEEN_ENGINES)
    plain = SpecificationRunner(config, weights(config)).run(IDS, ["logits"])["logits"]
    assert np.abs(ours["logits"] - plain).max() > 0.1


def test_what_cannot_be_run_is_refused() -> None:
    config = CHOICES["norm/rms_norm"]
    for runner in (SpecificationRunner(config, weights(config)), EngineRunner(fast(config))):
        for ids in ([], [7], [[1] * 9], [0.5]):
            with pytest.raises(TokenError):
                runner.run(ids, ["logits"])
        with pytest.raises(UsageError):
            runner.run(IDS, ["blocks.0.attn.patern"])
