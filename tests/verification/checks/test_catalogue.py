"""Every check passes on a healthy model, or says why it was not made."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import pellucid
from pellucid.formats.pretrained import Pretrained
from pellucid.model import Model
from pellucid.verification.checks.catalogue import CHECKS, verify
from pellucid.verification.checks.check import LENGTH, Check, Subject
from pellucid.verification.checks.training.runs import CHECKS as RUN_CHECKS
from pellucid.verification.verdict import Finding, Judged, Verdict
from tests.formats.gguf import random_models
from tests.model import folders
from tests.training.small_run_folders import trained
from tests.verification.checks.subjects import find_check, shorten

HEALTHY = ("abcd", "llama")
"""`tests/faults/healthy.py` has the others."""
NOT_ABCD = (
    "file weights",
    "far positions",
    "tokenizer",
    "tokenizer outside",
    "bos",
    "conventions",
    "transformers",
    "llama.cpp",
)
"""It is a TOML file without positions, its vocabulary has four words, and no other program supports its
architecture."""
REASONS = (
    "it does not predict English under any convention",
    "no GGUF architecture can hold this model: ",
    "it uses relative distances only",
    "it has no chat template",
    "the compiled decoder does not have ",
    "the fused step does not have weights on cpu",
)


def healthy(name: str, check: Check[Subject], finding: Finding) -> None:
    if finding.verdict == "skipped":
        assert (name == "abcd" and check.name in NOT_ABCD) or finding.measured.startswith(REASONS)
    assert finding.verdict in ("equal", "noise", "skipped", "cannot tell"), f"{finding.at}\n{finding.message}"
    assert finding.measured and not finding.at and not finding.message


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_model_passes_every_check_or_has_a_reason_why_not(name: str, tmp_path: Path) -> None:
    """Above 10 s on a busy machine: every check, `transformers` and `llama.cpp` among them, on one layer."""
    model = name if name == "abcd" else folders.huggingface(tmp_path, name, num_hidden_layers=1)
    subject = Subject(pellucid.load(model))
    for check in CHECKS:
        if check.name != "compiled":
            healthy(name, check, check.measure(subject))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_a_healthy_model_passes_compiled() -> None:
    """Above 10 s where nothing is cached: the compiler writes, compiles and loads C++."""
    finding = find_check("compiled").measure(Subject(pellucid.load("abcd")))
    healthy("abcd", find_check("compiled"), finding)
    assert finding.verdict == "noise"


def test_every_claim_is_a_complete_sentence() -> None:
    verbs = {"gives", "equals", "do", "changes", "computes", "change", "predicts", "is", "returns", "encode"}
    verbs |= {"follows", "fits", "drops"}
    for check in (*CHECKS, *RUN_CHECKS):
        first, *rest = check.claim.removesuffix(".").split()
        assert check.claim.endswith(".") and (first[0].isupper() or first[0] == first[-1] == "`"), check.name
        assert first.lower() not in ("so", "and", "nor", "but", "or") and rest[-1] not in ("and", "or", "but")
        assert verbs & set(rest), "a claim needs a verb; add it here if it is another one"


def test_every_check_has_a_unique_name_and_a_budget() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.budget for check in (*CHECKS, *RUN_CHECKS))


def test_each_check_judges_what_the_page_says() -> None:
    page = (Path(pellucid.__file__).parent.parent / "docs" / "verify.md").read_text("utf-8")
    for judged in Judged:
        (row,) = re.findall(rf"^\| {judged} \|.*\| (.*) \|$", page, re.MULTILINE)
        names = [check.name for check in CHECKS if check.judges is judged]
        assert names and set(row.partition(";")[0].split(", ")) == set(names)
    of_files = [check.name for check in RUN_CHECKS if check.judges is not Judged.PROGRAM]
    assert of_files == ["run files"]


def test_quick_omits_the_slow_checks_and_before_is_called_for_each_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def after(finding: Finding) -> None:
        assert seen[-1] == finding.name
        assert finding.seconds >= 0

    called = [replace(check, measure=lambda subject: Finding(Verdict.EQUAL, "0")) for check in CHECKS]
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", called)
    report = verify("abcd", quick=True, before=lambda check: seen.append(check.name), after=after)
    assert [finding.name for finding in report.findings] == seen and not report.not_run
    of_gpu = [check.name for check in CHECKS if check.device == "cuda"]
    assert seen == [check.name for check in CHECKS if check.quick and check.name not in of_gpu]
    assert {check.name for check in CHECKS} - set(seen) == {
        *of_gpu,
        "gradients",
        "float16",
        "far positions",
        "compiled",
        "packed rows",
        "training pass",
        "scheduled together",
        "backward paths",
        "finite differences",
        "saved",
    }


# ---- models at the edges


SMALL = {"n_layer": 1, "d_model": 32, "d_ff": 32, "n_head": 2, "n_kv_head": 1}
"""Every check is made on it, in half of the time."""


def subject(**more: object) -> Subject:
    return Subject(Model(random_models.model(random_models.LLAMA | more)))


def test_a_model_without_a_tokenizer_is_verified_on_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    given: Pretrained = random_models.model(random_models.LLAMA | SMALL, tokenizer=None)
    mute = Subject(Model(given))
    assert len(mute.ids) == LENGTH
    found = {check.name: check.measure(mute) for check in CHECKS if check.quick}
    for name in ("tokenizer", "tokenizer outside", "bos", "conventions"):
        assert "has no tokenizer" in found.pop(name).measured
    assert {finding.verdict for finding in found.values()} <= {"equal", "noise", "skipped"}
    assert found["transformers"].verdict == "noise"


def test_a_model_that_sees_ahead_has_no_cache_to_check() -> None:
    ahead = subject(mask="none")
    for name in ("cached", "chunked prefill", "int8 cache"):
        assert find_check(name).measure(ahead).verdict == "skipped"
    for name in ("specification", "batched", "padded", "fused"):
        assert find_check(name).measure(ahead).verdict in ("equal", "noise")


@pytest.mark.rotating
@pytest.mark.parametrize("context", [1, 3])
def test_a_model_with_hardly_any_context_is_verified(context: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    short = subject(context_length=context, **SMALL)
    for check in CHECKS:
        if check.name != "compiled":
            finding = check.measure(short)
            may_be = ("equal", "noise", "skipped", *(["cannot tell"] if check.name == "conventions" else []))
            assert finding.verdict in may_be, f"{check.name} at {finding.at}"


def test_a_tokenizer_with_a_closed_vocabulary_is_not_called_wrong(tmp_path: Path) -> None:
    from pellucid.data.sources.generated import spaced_words

    few = Subject(
        Model(random_models.model(random_models.LLAMA | {"vocab_size": 400}, tokenizer=spaced_words("easy")))
    )
    finding = find_check("tokenizer").measure(few)
    assert finding.verdict == "skipped" and "encodes as" in finding.measured


def test_transformers_prints_nothing_while_it_reads_a_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """transformers says of a folder of ours that it does not know its type of model."""
    trained(tmp_path / "a", "data.path=stories:easy", "steps=1", "evaluation.sample=0")
    subject = Subject(pellucid.load(tmp_path / "a" / "model"))
    capfd.readouterr()
    assert find_check("tokenizer outside").measure(subject).verdict == "equal"
    assert "transformers" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MemoryError(), "skipped"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "skipped"),
        (RuntimeError("shapes do not fit"), "BUG"),
    ],
)
def test_a_check_that_cannot_run_is_a_bug_unless_memory_is_short(error: Exception, verdict: str) -> None:
    def fail(subject: Subject) -> Finding:
        raise error

    check = Check("made up", "It is run.", "none", fail, Judged.PROGRAM)
    found = check.run(subject())
    assert (found.verdict, found.judges) == (verdict, Judged.PROGRAM)
