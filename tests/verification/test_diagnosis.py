"""A bug that somebody planted in a model of their own is not only found: it is called by its name."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.explanation.trace import Trace
from pellucid.reference.training import forward
from pellucid.verification.diagnosis import explain_bug
from pellucid.verification.judge_run import judge_run
from pellucid.verification.run_report import RunReport
from tests.explanation.runs_in_torch import Bugs, config, run, weights, widened
from tests.verification.stranger_llama import (
    BUGS,
    Parts,
    Sizes,
    causal,
    compare_run,
    compute_angles,
)
from tests.verification.stranger_llama import (
    MODULES as STRANGER_MODULES,
)

EVERYTHING = re.compile(".*")
MODULES = re.compile(
    r"embedded|.*norm\.out|.*attn\.[qkv]|.*attn\.z|.*attn_out|.*mlp\.(gate|up|act|hidden)|.*mlp_out|.*resid_post|logits"
)
"""What forward hooks on the modules of a library see."""
BLOCKS = re.compile(r"embedded|.*resid_post|final_norm\.out|logits")

PLANTED: dict[str, tuple[Bugs, str]] = {
    "eps": ({"eps": lambda _: 1e-3}, "norm eps: 0.001 for 1e-05"),
    "base": ({"base": lambda _: 500_000.0}, "RoPE base larger: 500,000 for 10,000"),
    "order": ({"layout": lambda _: "pairs"}, "RoPE layout: pairs for halves"),
    "heads": (
        {"repeat": lambda _: lambda n: n.repeat(1, 3, 1, 1)},
        "query head h on key/value head h % K",
    ),
    "scale": ({"scale": lambda _: 1.0}, "scores without 1/√D"),
    "width": ({"scale": lambda _: 48**-0.5}, "scores with 1/√C"),
    "mask": ({"diagonal": lambda _: 1}, "mask one token ahead"),
    "gelu": ({"silu": lambda _: F.gelu}, "activation: gelu for silu"),
    "gate": ({"gate": lambda pair: pair[::-1]}, "gate and up swapped"),
}


def compared(
    bugs: Bugs, keep: re.Pattern[str], type: torch.dtype = torch.float32, known: bool = True
) -> RunReport:
    """Six query heads on two key heads, so that every mistake makes a difference."""
    shape = config("llama", 48, 24, 6)
    w = weights(shape, type, 3)
    w["embed.weight"] *= 0.05  # so small that an eps counts
    ids = torch.randint(0, shape.vocab_size, (1, 12), generator=torch.Generator().manual_seed(3))
    recorded = {name: x for name, x in run(shape, w, ids, ids, bugs).items() if keep.fullmatch(name)}
    trace = Trace(forward(shape, widened(w), ids.numpy()))
    recorded = {name: x for name, x in recorded.items() if name in trace.tape}
    done = judge_run(trace, recorded)
    return explain_bug(done, trace, recorded, shape if known else None)


@pytest.mark.parametrize("bug", PLANTED)
@pytest.mark.parametrize("keep", [EVERYTHING, MODULES, BLOCKS], ids=["everything", "modules", "blocks"])
def test_a_planted_bug_is_called_by_its_name(bug: str, keep: re.Pattern[str]) -> None:
    bugs, mistake = PLANTED[bug]
    done = compared(bugs, keep)
    assert done.verdict == "BUG", str(done)
    assert done.explained_by == (mistake,), str(done)
    assert f"these numbers fit a usual mistake: {mistake}\n" in str(done)


@pytest.mark.parametrize("bug", ["heads", "order", "gate", "scale"])
def test_a_planted_bug_is_called_by_its_name_in_bfloat16_and_without_a_config(bug: str) -> None:
    bugs, mistake = PLANTED[bug]
    done = compared(bugs, MODULES, torch.bfloat16, known=False)
    assert done.explained_by[:1] == (mistake,), str(done)


@pytest.mark.parametrize(
    ("bug", "mistake"),
    [
        ("rope counted from one", "RoPE positions counted from 1"),
        ("rope angles in bfloat16", "low-precision RoPE: angles in bfloat16"),
        ("scale 5 % off", "scores 5 % too large"),
    ],
)
def test_a_subtle_mistake_of_another_program_is_called_by_its_name(bug: str, mistake: str) -> None:
    assert compare_run("float32", BUGS[bug]).explained_by[0] == mistake


LOGITS = re.compile("logits")
WINDOWED = Sizes(window=8)


def windowed(size: int) -> Parts:
    return Parts(mask=lambda length: causal(length).triu(1 - size))


@pytest.mark.parametrize(
    ("parts", "mistake"),
    [
        (windowed(9), "window: 9 for 8 keys"),
        (windowed(7), "window: 7 for 8 keys"),
        (Parts(), "plain causal mask"),
        (
            replace(BUGS["rope angles in bfloat16"], mask=windowed(8).mask),
            "low-precision RoPE: angles in bfloat16",
        ),
        (
            replace(BUGS["rope angles in float16"], mask=windowed(8).mask),
            "low-precision RoPE: angles in float16",
        ),
        (replace(BUGS["residual after the norm"], mask=windowed(8).mask), "residual taken after the norm"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_wrong_model_is_called_by_its_mistake_where_only_its_logits_are_recorded(
    parts: Parts, mistake: str
) -> None:
    done = compare_run("float32", parts, LOGITS, WINDOWED)
    assert done.verdict == "BUG" and done.explained_by == (mistake,), str(done)


def test_positions_in_bfloat16_are_named_beyond_the_256_that_it_holds() -> None:
    def places(positions: Tensor, half: int, base: float) -> Tensor:
        return compute_angles(positions.bfloat16(), half, base)

    done = compare_run(
        "float32", Parts(angles=places), re.compile(r"embedded|.*_rot|.*attn\.[qk]"), length=270
    )
    assert done.explained_by == ("low-precision RoPE: positions in bfloat16",), str(done)


@pytest.mark.parametrize("hidden", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_finite_number_for_a_masked_score_is_named_where_it_shows(hidden: float) -> None:
    done = compare_run("float32", Parts(hidden_score=hidden), re.compile(r".*attn\.(scores|masked)"))
    assert (done.bugs[0].name, len(done.bugs)) == ("blocks.0.attn.masked", 2), str(done)
    assert done.explained_by[0].startswith("finite mask: "), str(done)


def test_a_finite_number_for_a_masked_score_is_left_alone_where_it_does_not_show() -> None:
    parts = Parts(hidden_score=-1e4)
    for keep, verdict in ((STRANGER_MODULES, "noise"), (LOGITS, "no bug seen")):  # the pattern is the same
        assert compare_run("float32", parts, keep).verdict == verdict


def test_a_bug_that_no_usual_mistake_makes_is_explained_by_none() -> None:
    def flipped(w: Any) -> Any:
        wrong = w.clone()
        wrong.view(-1)[w.abs().argmax()] *= -1
        return wrong

    done = compared({"blocks.1.attn.k_proj.weight": flipped}, EVERYTHING)
    assert [bug.name for bug in done.bugs] == ["blocks.1.attn.k"]
    assert done.explained_by == () and "usual mistake" not in str(done)


def test_a_healthy_run_needs_no_explanation() -> None:
    done = compared({}, MODULES)
    assert done.verdict == "noise" and done.explained_by == ()


def test_wrong_scores_that_a_mask_hands_on_are_explained_by_the_formula_of_the_scores() -> None:
    done = compared({"scale": lambda _: 1.0}, re.compile(r"(?!.*\.scores).*"))
    assert done.bugs[0].name == "blocks.0.attn.masked", str(done)
    assert "S[h,t,s] = Σ_d Q'[h,t,d] K'[k,s,d]" in done.formula, done.formula
    ahead = compared({"diagonal": lambda _: 1}, re.compile(r"(?!.*\.scores).*"))
    assert "if mask[t,s] = 1, else -∞" in ahead.formula, ahead.formula


def test_a_span_of_too_many_numbers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.verification.diagnosis.MAX_NUMBERS", 100)
    assert compared({"scale": lambda _: 1.0}, MODULES).explained_by == ()
