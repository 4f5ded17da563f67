"""The hand-derived backward agrees with PyTorch's autograd on every value that both name."""

import dataclasses

import numpy as np
import pytest
import torch

from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.parts.unembeddings import LinearUnembedding
from pellucid.reference.tape import Tape
from pellucid.reference.training import Weights, forward
from pellucid.verification.diagnosis import plant_mistake
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch, find_mismatch
from tests.agreement import transcriptions
from tests.agreement.transcriptions import Named
from tests.reference.models import CONFIGS, weights

GPT2 = CONFIGS["gpt2"]
LLAMA = dataclasses.replace(CONFIGS["llama"], d_model=10, d_head=6)  # three pairs: the layouts differ
IDS = np.array([[1, 3, 1, 0], [0, 2, 4, 4]])
TARGETS = np.array([[3, -100, 0, 2], [2, 4, 4, 1]])
REAL = np.array([[1, 1, 1, 1], [1, 0, 1, 1]])

FUSED = {"mean", "centered", "rstd", "normed", "lse"}
"""What F.layer_norm and F.cross_entropy compute without showing it."""


def ours(config: ModelConfig, values: Weights) -> Tape:
    tape = forward(config, values, IDS, TARGETS, padding=REAL)
    tape.backward(tape.ref("loss"))
    return tape


def theirs(config: ModelConfig, values: Weights) -> tuple[Named, Named]:
    """The transcription's parameters and its named values, both knowing their gradients."""
    w = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    given = (torch.tensor(IDS), torch.tensor(TARGETS), torch.tensor(REAL))
    shape = {"layers": config.n_layer, "heads": config.n_head, "eps": config.norm.eps}
    if config is GPT2:
        kept = transcriptions.gpt2(w, *given, **shape)
    else:
        kept = transcriptions.llama(w, *given, **shape, kv_heads=config.n_kv_head, base=config.positions.base)
    kept["loss"].backward()
    return w, kept


both = pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])


@both
def test_every_value_agrees_with_torch(config: ModelConfig) -> None:
    tape, (_, kept) = ours(config, weights(config)), theirs(config, weights(config))
    wanted = {name: value.detach().numpy() for name, value in kept.items()}
    assert find_first_mismatch({name: tape[name] for name in wanted}, wanted, BETWEEN_ENGINES) is None


@both
def test_every_gradient_agrees_with_autograd(config: ModelConfig) -> None:
    tape, (w, kept) = ours(config, weights(config)), theirs(config, weights(config))
    wanted = {f"d.{name}": x.grad.numpy() for name, x in (w | kept).items() if x.grad is not None}
    assert set(w) <= {name.removeprefix("d.") for name in wanted}
    assert find_first_mismatch({name: tape[name] for name in wanted}, wanted, BETWEEN_ENGINES) is None


@both
def test_only_what_reaches_the_loss_has_a_gradient(config: ModelConfig) -> None:
    tape, (_, kept) = ours(config, weights(config)), theirs(config, weights(config))
    assert {name for name in kept if kept[name].grad is None} == {"probs"}
    assert {name for name in kept if f"d.{name}" not in tape} == {"probs"}


@both
def test_transcription_names_every_value_that_torch_shows(config: ModelConfig) -> None:
    tape, (_, kept) = ours(config, weights(config)), theirs(config, weights(config))
    forward_values = [name for name, step in tape.steps.items() if step.phase == "fwd"]
    shared = {name for name in forward_values if describe(name).engines == "both"}
    unnamed = {name.rpartition(".")[2] for name in shared - set(kept)}
    assert unnamed == (FUSED if config is GPT2 else set())


def test_tied_embedding_gets_its_gradient_from_both_ends() -> None:
    tape = ours(GPT2, weights(GPT2))
    read, written = (tape[f"d.embed.weight.via.{end}"] for end in ("embedded", "logits"))
    assert read.any()
    assert written.any()
    assert find_mismatch("d.embed.weight", read + written, tape["d.embed.weight"], 1e-15) is None


def test_parts_of_the_tied_gradient_are_the_untied_gradients() -> None:
    values = weights(GPT2)
    tied = ours(GPT2, values)
    untied = ours(
        dataclasses.replace(GPT2, unembedding=LinearUnembedding()),
        values | {"unembed.weight": values["embed.weight"]},
    )
    parts = {
        "d.embed.weight": tied["d.embed.weight.via.embedded"],
        "d.unembed.weight": tied["d.embed.weight.via.logits"],
    }
    assert find_first_mismatch({name: untied[name] for name in parts}, parts, 1e-15) is None


PLANTED = {
    "blocks.0.attn.scores": ("scores without 1/√D", "blocks.0.attn.scores"),
    "blocks.1.attn.masked": ("mask one token ahead", "blocks.1.attn.masked"),
    "blocks.0.attn_out": ("output projection transposed", "blocks.0.attn_out"),
    "blocks.0.attn_norm.rstd": ("variance divided by N − 1", "blocks.0.attn_norm.out"),
    "d.blocks.0.resid_mid": ("first term of the sum missing", "d.blocks.0.resid_mid"),
}
"""A bug in one step of our program, and the first value at which the comparison with PyTorch must stop;
PyTorch shows no rstd, so that one is first seen in the norm's result."""


@pytest.mark.parametrize("step", PLANTED)
def test_a_bug_planted_in_the_specification_is_caught_by_the_comparison_with_torch(step: str) -> None:
    mistake, seen_at = PLANTED[step]
    tape = ours(GPT2, weights(GPT2))
    wrong = plant_mistake(tape, tape.resolve(step), mistake)
    w, kept = theirs(GPT2, weights(GPT2))
    shown = {name: value.detach().numpy() for name, value in kept.items()}
    shown |= {f"d.{name}": x.grad.numpy() for name, x in (kept | w).items() if x.grad is not None}
    wanted = {name: shown[name] for name in tape.steps if name in shown}
    found = find_first_mismatch(wrong, wanted, BETWEEN_ENGINES)
    assert found is not None
    assert found.name == seen_at
    assert find_first_mismatch(tape.values, wanted, BETWEEN_ENGINES) is None
