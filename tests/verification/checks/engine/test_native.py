"""The compiled decoder is judged from its own values: noise in every type and family, else a bug."""

from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.quantized import Scheme
from pellucid.engine.cpu.library import NoLibrary
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine import native
from pellucid.verification.checks.engine.native import (
    FLOATS,
    QUANTIZED,
    CachedDecoder,
    judge_decoded,
    read_rounded,
)
from pellucid.verification.checks.engine.schedule import run_decoded
from tests.faults.loaded import quantized
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import FAMILIES
from tests.model import folders
from tests.verification.checks.subjects import find_check, shorten

DECODED, PROMPT, SCHEDULED = (find_check(f"native {name}") for name in ("decoded", "prompt", "scheduled"))


def make_model(scheme: str | None = None, **changes: object) -> Model:
    pretrained = random_models.model(random_models.LLAMA | changes)
    return Model(quantize_pretrained(pretrained, Scheme.from_name(scheme)) if scheme else pretrained)


@pytest.mark.rotating
@pytest.mark.parametrize("check", [DECODED, PROMPT, SCHEDULED], ids=lambda check: check.name)
@pytest.mark.parametrize("weights", [None, "int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_healthy_decoder_of_every_family_and_type_is_noise(
    family: str, weights: str | None, check: Check[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    found = check.run(Subject(pellucid.load(folders.huggingface(tmp_path, family), weights=weights)))
    assert found.verdict == "noise", found
    types = QUANTIZED if weights else FLOATS
    assert found.measured.count(" cache") == len(types)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_a_healthy_decoder_of_a_file_s_own_blocks_is_noise(kind: str, tmp_path: Path) -> None:
    quantized(kind)(tmp_path / "model.gguf")
    found = DECODED.run(Subject(pellucid.load(tmp_path / "model.gguf", weights="file")))
    assert found.verdict == "noise", found


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_without_rounded_activations_the_replay_does_not_follow(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the rounding of activations is seen, and not hidden in the budget."""
    subject = Subject(make_model(scheme))
    module = subject.module(torch.float32)
    decoder = CachedDecoder(module, torch.float32, 1)
    with torch.no_grad():
        (*_, texts) = run_decoded(subject, decoder, True).texts
    assert judge_decoded(subject, module, texts, torch.float32)
    monkeypatch.setattr(native, "_round_input", lambda name, seen: seen[name])
    report = judge_decoded(subject, module, texts, torch.float32)
    assert not report and report.bugs[0].name == "blocks.0.attn.q"


def test_the_cache_s_rounding_of_keys_is_not_hidden_in_the_budget() -> None:
    subject = Subject(make_model())
    module = subject.module(torch.float32)
    with torch.no_grad():
        (*_, texts) = run_decoded(subject, CachedDecoder(module, torch.float16, 1), True).texts
    assert judge_decoded(subject, module, texts, torch.float16)
    report = judge_decoded(subject, module, texts, torch.float32)
    assert not report and report.bugs[0].name == "blocks.0.attn.z"


def test_the_rounding_of_queries_to_an_int8_cache_is_not_hidden_in_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(make_model())
    module = subject.module(torch.float32)
    with torch.no_grad():
        (*_, texts) = run_decoded(subject, CachedDecoder(module, torch.int8, 1), True).texts
    assert judge_decoded(subject, module, texts, torch.int8)
    monkeypatch.setattr(native, "_round_query", lambda value: value)
    report = judge_decoded(subject, module, texts, torch.int8)
    assert not report and report.bugs[0].name == "blocks.0.attn.z"


def test_a_product_with_minimums_reads_both_parts_of_its_weight() -> None:
    subject = Subject(make_model("int4"))
    module = subject.module(torch.float32)
    with torch.no_grad():
        (*_, texts) = run_decoded(subject, CachedDecoder(module, torch.float32, 1), True).texts
    program = subject.program_of(texts.ids)
    weights = {name: held.to_weight() for name, held in module.quantized_weights().items()}
    tape = read_rounded(program, texts.values, weights, torch.float32)
    step = tape.steps["blocks.1.attn_out"]
    assert step.inputs == ("blocks.1.attn.z.rounded.twice", "blocks.1.attn.o_proj.weight.terms")
    half = tape[step.inputs[0]].shape[1] // 2
    z = tape[step.inputs[0]][:, :half]
    wanted = np.einsum("bhtd,chd->btc", z, tape["blocks.1.attn.o_proj.weight"].reshape(64, half, -1))
    np.testing.assert_allclose(step.run(tape.values), wanted, rtol=1e-9)


def test_a_choice_that_the_decoder_does_not_have_is_said() -> None:
    found = DECODED.run(Subject(make_model(score_cap={"kind": "tanh", "limit": 5.0})))
    assert found.verdict == "skipped" and "a soft cap" in found.measured


def test_a_machine_without_the_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NoLibrary("no compiler was found.")

    monkeypatch.setattr("pellucid.engine.cpu.decoder.load_library", fail)
    found = PROMPT.run(Subject(make_model()))
    assert (found.verdict, found.measured) == ("skipped", "no compiler was found.")
