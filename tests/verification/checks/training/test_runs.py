"""`verify RUN`: no healthy run is called wrong, whatever its recipe; nothing is written into its folder."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import FileError, UsageError
from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.parts import kinds
from pellucid.verification.checks import catalogue
from pellucid.verification.checks.catalogue import verify
from pellucid.verification.checks.training import gradient_reference, run_subject
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.runs import CHECKS
from pellucid.verification.verdict import Finding, Verdict
from tests.training import small_models, small_run_folders
from tests.training.small_run_folders import trained

OF_SOME = ("step sums", "epoch targets", "validation rows")
"""Checks of runs in bfloat16, and of runs on token files."""
NAMES = [check.name for check in CHECKS]
DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
BIASES = 'model.biases=["qkv", "output", "mlp", "norm", "unembed"]'
STORIES = ("data.path=stories:easy", "model.context_length=32")
TYPES = {
    "float64": (),
    "float32": ("train.dtype=float32",),
    "autocast": ("train.dtype=bfloat16",),
    "bfloat16": ("train.dtype=bfloat16", "train.weights=bfloat16"),
}
RECIPES = {
    "plain": (),
    "parts, average and dropout": ("train.accumulate=2", "train.ema=0.9", DROPOUT),
    "β₂ warms up": ("optimizer.beta2_start=0.9", "optimizer.beta2_warmup=9", "train.clip=0"),
    "chunks": ("train.label_smoothing=0.1", "train.z_loss=1e-3", "train.logits_chunk=5"),
    "class weights": ('train.class_weights={"a"=0.2, "b"=3.0}', "train.accumulate=4"),
    "frozen": ("train.freeze=embed.*", "model.unembedding=linear"),
    "LayerNorm": ("model.norm=layer_norm", "model.positions=learned", "model.mlp=gelu", BIASES),
    "ALiBi": ("model.positions=alibi", "model.n_kv_head=1", "model.qk_norm=rms_norm"),
    "packed, recomputed": (*STORIES, "data.rows=packed", DROPOUT, "train.activation_checkpointing=true"),
    "large rate": ("optimizer.lr=0.3", "steps=12"),
    "one step": ("steps=1",),
    "three steps": ("steps=3",),
}


def measure(path: Path, step: int | None = None) -> dict[str, Finding]:
    subject = RunSubject(path, step)
    return {check.name: check.run(subject) for check in CHECKS}


def is_healthy(found: dict[str, Finding], *skipped: str) -> None:
    for name, finding in found.items():
        assert finding.verdict in ("equal", "noise", "skipped"), f"{name} at {finding.at}\n{finding.message}"
        assert finding.measured and not finding.at
    without = {name for name, finding in found.items() if finding.verdict == "skipped"}
    assert without <= {*skipped, *OF_SOME}


@pytest.mark.rotating
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")  # torch's own
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_healthy_run_passes_every_check(recipe: str, kind: str, tmp_path: Path) -> None:
    trained(tmp_path / "a", *TYPES[kind], *RECIPES[recipe])
    is_healthy(measure(tmp_path / "a"), "step dropout")


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("optimizer", kinds("optimizers"))
def test_a_run_with_any_optimizer_passes(optimizer: str, kind: str, tmp_path: Path) -> None:
    trained(tmp_path / "a", f"optimizer.kind={optimizer}", "optimizer.lr=0.01", *TYPES[kind])
    is_healthy(measure(tmp_path / "a"), "step dropout")


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
@pytest.mark.parametrize("rows", ["windows", "packed", "padded", "streams"])
def test_a_run_on_any_rows_of_a_text_finds_them_in_its_token_files(
    rows: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("\n\n".join(f"The cat saw {n} birds." * (1 + n % 3) for n in range(90)))
    data = (f"data.path={tmp_path / 'text'}", "data.tokenizer=bytes", f"data.rows={rows}")
    trained(tmp_path / "a", *data, "model.context_length=24", *TYPES[kind])
    found = measure(tmp_path / "a")
    is_healthy(found, "step dropout")
    assert found["step batch"].measured.endswith("a row was found in the token files")


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
@pytest.mark.parametrize("changes", [(), ("lora.dropout=0.2",), ("train.ema=0.9", DROPOUT)])
def test_a_run_with_adapters_is_judged_by_their_product(
    changes: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(small_run_folders.TABLE, "model", {"context_length": 12})
    (tmp_path / "text").write_text(small_models.TEXT)
    start = small_models.folder(tmp_path / "start")
    run = (f"start={start}", f"data.path={tmp_path / 'text'}", "lora.rank=3", "lora.alpha=6", *changes)
    trained(tmp_path / "a", *run, *TYPES[kind])
    found = measure(tmp_path / "a")
    unknown = found.pop("step dropout")
    is_healthy(found)
    assert found["step gradients"].measured.split(", of ")[1].startswith("28 gradients")
    assert unknown.verdict == ("cannot tell" if "lora.dropout=0.2" in changes else unknown.verdict)
    assert ("without dropout" in found["step loss"].measured) is ("lora.dropout=0.2" in changes)


HOT = ("optimizer.lr=0.5", "steps=30", "checkpoint.every=15", "model.unembedding=linear", "model.d_model=32")
ADDITION = ("data.path=task:addition", "model.context_length=24")


@pytest.mark.rotating
@pytest.mark.parametrize(
    "changes",
    [
        (
            *TYPES["float32"],
            "seed=192259",
            "model.n_head=1",
            "model.d_ff=64",
            "model.positions=alibi",
            *ADDITION,
        ),
        (*TYPES["autocast"], "seed=967874", "model.n_head=4", "model.d_ff=24", "model.n_layer=3", *ADDITION),
        (*TYPES["bfloat16"], "seed=546849", "model.n_layer=1", "train.accumulate=2", DROPOUT, *ADDITION),
        (*TYPES["bfloat16"], "seed=124676", "model.n_layer=3", "data.rows=packed", DROPOUT),
    ],
)
def test_a_run_that_diverged_is_not_called_wrong(changes: tuple[str, ...], tmp_path: Path) -> None:
    """Its scores are in the thousands, and rounding in a kernel changes what is attended to."""
    trained(tmp_path / "a", *HOT, *changes)
    for name, finding in measure(tmp_path / "a").items():
        assert not finding.verdict.is_failure, f"{name} at {finding.at}\n{finding.message}"


def test_where_rounding_decides_what_is_attended_to_nothing_is_called_a_bug(run: Path) -> None:
    subject = RunSubject(run)
    subject.reference = replace(subject.reference, own=replace(subject.reference.own, largest_score=1e9))
    found = subject.confirm(lambda: Finding(Verdict.BUG, "1", "loss"))
    assert found.verdict == "cannot tell" and "attention scores reach 1,000,000,000" in found.measured


# ---- which step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    trained(path, "train.dtype=float32", "checkpoint.every=2")
    return path


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_the_second_step_after_the_newest_checkpoint_with_two_logged_steps_is_judged(run: Path) -> None:
    before = files(run)
    subject = RunSubject(run)
    assert (subject.replay.start, subject.replay.step, subject.logged["step"]) == (4, 6, 6)
    is_healthy(measure(run), "step dropout")
    assert files(run) == before


@pytest.mark.parametrize(("step", "start"), [(1, 0), (2, 0), (3, 0), (5, 2), (6, 4)])
def test_any_step_can_be_chosen(step: int, start: int, run: Path) -> None:
    subject = RunSubject(run, step)
    assert (subject.replay.start, subject.replay.step) == (start, step)
    is_healthy({check.name: check.run(subject) for check in CHECKS}, "step dropout")


def test_a_step_that_the_run_did_not_make_is_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="has made 6 of 6 updates"):
        RunSubject(run, 7)


def test_without_a_log_and_with_one_checkpoint_the_beginning_is_judged(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "a")
    (tmp_path / "a" / "log.jsonl").unlink()
    for step in (2, 4):
        shutil.rmtree(tmp_path / "a" / "checkpoints" / checkpoint_name(step))
    subject = RunSubject(tmp_path / "a")
    assert (subject.replay.start, subject.replay.step) == (0, 2)
    found = measure(tmp_path / "a")
    is_healthy(found, "step dropout", "validation loss", "log figures")
    assert "the log has the same" not in found["step norm"].measured


def test_a_run_whose_every_step_is_skipped_has_no_step_to_judge(tmp_path: Path) -> None:
    trained(
        tmp_path / "a", "train.dtype=float32", "optimizer.kind=sgd", "optimizer.lr=1e25", "train.clip=0",
        "schedule.warmup=0", "train.on_nonfinite=stop",
    )  # fmt: skip
    found = measure(tmp_path / "a")
    assert {found[name].verdict for name in NAMES if name.startswith("step")} == {"skipped"}


# ---- batches that are too large


@pytest.fixture
def expensive(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(gradient_reference, "SPECIFICATION_COST", 40_000)
    return monkeypatch


@pytest.mark.rotating
@pytest.mark.parametrize(
    "changes", [(), ("train.dtype=float32", "train.accumulate=2"), TYPES["bfloat16"], (DROPOUT,)]
)
def test_a_large_batch_is_computed_by_the_fast_engine_in_float64(
    changes: tuple[str, ...], expensive: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained(tmp_path / "a", *changes)
    found = measure(tmp_path / "a")
    is_healthy(found, "step dropout")
    assert "72 tokens by the fast engine in float64" in found["step gradients"].measured


@pytest.mark.parametrize("changes", [(), ("train.dtype=float32", "train.accumulate=2", DROPOUT)])
def test_of_a_larger_one_a_pass_over_fewer_rows_is_judged(
    changes: tuple[str, ...], expensive: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expensive.setattr(run_subject, "FAST_COST", 50_000)
    trained(tmp_path / "a", *changes)
    found = measure(tmp_path / "a")
    is_healthy(found, "step dropout")
    assert "2 rows of step 6" in found["step gradients"].measured


def test_a_wrong_engine_in_float64_does_not_vouch_for_a_large_batch(
    expensive: pytest.MonkeyPatch, run: Path
) -> None:
    right = gradient_reference.compute_by_fast_engine

    def wrong(*given: object) -> object:
        found = right(*given)  # type: ignore[arg-type]
        return replace(found, grads={name: 1.01 * np.asarray(grad) for name, grad in found.grads.items()})

    expensive.setattr(gradient_reference, "compute_by_fast_engine", wrong)
    finding = measure(run)["step gradients"]
    assert (finding.verdict, finding.measured) == ("BUG", "the engines differ")


# ---- `pellucid.verify`


def test_the_page_has_a_row_for_every_check_of_a_run() -> None:
    page = (Path(__file__).parents[4] / "docs" / "recorder.md").read_text("utf-8")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in NAMES] == NAMES


def test_a_check_says_what_it_trusts(run: Path) -> None:
    finding = next(check for check in CHECKS if check.name == "log figures").run(RunSubject(run))
    assert finding.to_data()["trusts"].startswith("the logged losses")
    assert any("trusts the logged losses" in line for line in finding.lines(is_verbose=True))
    assert all(check.trusts and not check.trusts.endswith(".") for check in CHECKS)


def test_verify_of_a_run_judges_its_step_and_then_its_newest_model(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [check for check in catalogue.CHECKS if check.required]
    monkeypatch.setattr(catalogue, "CHECKS", few)
    seen: list[str] = []
    report = verify(run, quick=True, before=lambda check: seen.append(check.name))
    assert [finding.name for finding in report.findings] == seen
    assert seen == [*NAMES, *(check.name for check in few)] and len(set(seen)) == len(seen)
    assert report["step gradients"].verdict == "noise"


def test_verify_of_a_model_has_no_step(run: Path) -> None:
    with pytest.raises(UsageError, match="step=3 is for the folder of a run"):
        verify(run / "model", step=3)
    with pytest.raises(UsageError, match="step=3 is for the folder of a run"):
        verify(pellucid.load(run), step=3)


def test_a_run_whose_text_is_gone_says_how_its_model_is_verified(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The cat saw the birds. " * 99)
    path = tmp_path / "a"
    trained(path, f"data.path={tmp_path / 'text'}", "data.tokenizer=bytes", "steps=2")
    shutil.rmtree(path / "data")
    with pytest.raises(FileError, match=f"the data of this run are gone.*verify {path / 'model'}`"):
        verify(path, quick=True)


def test_an_empty_run_folder_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(FileError):
        verify(tmp_path, quick=True)
