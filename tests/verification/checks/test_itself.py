"""`verify_self`: this program is found healthy on its own models, and its faults are found there."""

import pytest
import torch

import pellucid
from pellucid.config import ModelConfig
from pellucid.training.machine import use_threads
from pellucid.verification.checks import catalogue, itself
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.itself import RANDOM, make_model
from pellucid.verification.verdict import Finding, Judged, Verdict, VerifyReport
from tests.faults import in_generation, in_kernels
from tests.faults.fault import Plant
from tests.verification.checks.subjects import find_check, shorten


@pytest.mark.rotating
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", RANDOM)
def test_this_program_has_no_bug(name: str, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks of this program, on `abcd` and one of the models with random weights."""
    monkeypatch.setattr(itself, "RANDOM", {name: RANDOM[name]})
    shorten(monkeypatch)
    report = pellucid.verify_self(quick=quick)
    assert report, str(report)
    wanted = [check.name for check in catalogue.select_checks(quick) if check.judges is Judged.PROGRAM]
    assert [*report.by_model] == ["abcd", name]
    for part in report.by_model.values():
        assert [finding.name for finding in part.findings] == wanted
    made = {finding.name for finding in report.findings if finding.verdict is not Verdict.SKIPPED}
    assert made == set(wanted)
    assert {finding.verdict for finding in report.findings} <= {Verdict.EQUAL, Verdict.NOISE, Verdict.SKIPPED}


def test_it_computes_on_one_thread_and_leaves_the_number_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other take minutes over models so small."""

    def count(subject: Subject) -> Finding:
        return Finding(Verdict.EQUAL, str(torch.get_num_threads()))

    counted = Check("made up", "It is counted.", "none", count, Judged.PROGRAM)
    monkeypatch.setattr(catalogue, "CHECKS", (counted,))
    before = torch.get_num_threads()
    with use_threads(2):
        report = pellucid.verify_self(quick=True)
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
    assert [finding.measured for finding in report.findings] == ["1"] * 3


def test_the_models_are_the_same_each_time_and_no_part_is_without_effect() -> None:
    for name, config in RANDOM.items():
        one, other = (make_model(name, ModelConfig.from_dict(config)) for _ in range(2))
        assert all((one.weights[key] == other.weights[key]).all() for key in one.weights)
        assert all(weight.std() > 0.1 for weight in one.weights.values())


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (in_kernels.one_query_reads_key_heads_in_turn, "decoded"),
        (in_kernels.positions_of_padded_rows_count_the_padding, "padded"),
        (in_kernels.fused_layer_norm_loses_its_bias, "fused"),
        (in_generation.draw_is_off_by_one_place, "sampled"),
    ],
)
def test_a_planted_fault_is_a_bug_of_this_program(
    plant: Plant, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults of a kernel, a layout, a part of one model alone, and a draw."""
    monkeypatch.setattr(catalogue, "CHECKS", (find_check(check),))
    plant(monkeypatch)
    report = pellucid.verify_self()
    assert not report and {bug.judges for bug in report.bugs} == {Judged.PROGRAM}
    assert f"found a bug in this program: {check} of " in report.summary()


def test_a_report_says_whose_each_bug_is_and_which_finding_is_the_gravest() -> None:
    def find(verdict: Verdict, name: str, judges: Judged, model: str = "") -> Finding:
        return Finding(verdict, "0", "here", name=name, judges=judges, model=model)

    several = [find(Verdict.BUG, "tokenizer", Judged.MODEL), find(Verdict.BUG, "seeds", Judged.PROGRAM)]
    assert (
        VerifyReport(tuple(several))
        .summary()
        .endswith(
            "; 1 found a bug in your model or its files: tokenizer (at here)"
            "; 1 found a bug in this program: seeds (at here)."
        )
    )
    verdicts = {"a": Verdict.EQUAL, "b": Verdict.BUG, "c": Verdict.SKIPPED}
    of_models = [find(one, "seeds", Judged.PROGRAM, name) for name, one in verdicts.items()]
    report = VerifyReport(tuple(of_models))
    assert report["seeds"].model == "b" and list(report.by_model) == ["a", "b", "c"]
    assert bool(report.by_model["a"]) and not report.by_model["b"]
    assert report.summary().startswith("do not trust it yet. 2 checks in 0 s; 1 found a bug in this program:")
    with pytest.raises(KeyError):
        report["fused"]
