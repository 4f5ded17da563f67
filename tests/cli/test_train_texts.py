"""`pellucid train` before its first step: which texts it reads, what it plans, and what it refuses."""

import time
import tomllib
from pathlib import Path

import pytest
import torch

from pellucid.training import machine, request
from pellucid.training.distributed.ranks import SINGLE_PROCESS
from pellucid.training.saving.run_folder import RunFolder
from tests.cli.commands import Shell

SMALL = [
    "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4", "train.compile=false",
    "evaluation.batches=1", "evaluation.sample=5", "schedule.warmup=2", "steps=2", "data.tokenizer=bytes",
]  # fmt: skip
TEXT = "The cat sat on the mat. The dog sat on the log. " * 50


def read_recipe(folder: str) -> dict[str, dict[str, object]]:
    return tomllib.loads((Path(folder) / "recipe.toml").read_text())


# ---- texts


def test_a_folder_can_be_trained_on_twice(shell: Shell) -> None:
    Path("my.txt").write_text(TEXT)
    for out in ("runs/a", "runs/b"):
        done = shell("train", ".", "--plain", f"out={out}", *SMALL)
        assert done.code == 0, done.err
    tokens = [path.read_bytes() for path in sorted(Path("runs").glob("*/data/tokens/*.tokens"))]
    assert len(tokens) == 4 and tokens[:2] == tokens[2:]


def test_several_texts_are_one_source_and_the_run_has_their_folder_s_name(shell: Shell) -> None:
    Path("notes").mkdir()
    for name in ("a", "b", "x=y"):
        Path(f"notes/{name}.txt").write_text(f"{name} {TEXT}")
    done = shell("train", *sorted(map(str, Path("notes").iterdir())), "--plain", *SMALL)
    assert done.code == 0, done.err
    recipe = read_recipe("runs/notes")
    assert recipe["data"]["path"] == ["notes/a.txt", "notes/b.txt", "notes/x=y.txt"]
    assert RunFolder("runs/notes").read_status().state == "finished"
    assert shell("train", "--resume", "runs/notes").code == 0


def test_a_pattern_may_be_quoted(shell: Shell) -> None:
    for name in ("a", "b"):
        Path(f"{name}.txt").write_text(TEXT)
    done = shell("train", "*.txt", "--dry-run", "out=runs/a", *SMALL)
    assert done.code == 0, done.err
    assert "the text has 4.8 kB" in done.out


def test_bad_files_are_all_named_before_anything_is_measured(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("notes").mkdir()
    Path("notes/good.txt").write_text(TEXT)
    for name in ("junk", "latin1"):
        Path(f"notes/{name}.txt").write_bytes(b"caf\xe9 \0")
    with monkeypatch.context() as patch:
        patch.setattr(machine, "measure_peak", pytest.fail)
        refused = shell("train", "notes", "--plain", *SMALL)
    assert refused.code == 2 and not Path("runs").exists()
    for words in ("2 of 3 files", "junk.txt", "latin1.txt", "data.on_bad_file=skip"):
        assert words in refused.err
    done = shell("train", "notes", "--plain", "data.on_bad_file=skip", *SMALL)
    assert done.code == 0, done.err
    assert "skipped 2 of 3 files" in done.out and "junk.txt" in done.out
    assert read_recipe("runs/notes")["data"]["on_bad_file"] == "skip"
    assert shell("train", "notes", "--dry-run", "data.on_bad_file=skop", *SMALL).code == 2


def test_replaced_bytes_are_counted(shell: Shell) -> None:
    Path("my.txt").write_bytes(b"caf\xe9 " * 400)
    done = shell("train", "my.txt", "--plain", "data.on_bad_file=replace", *SMALL)
    assert done.code == 0 and "replaced 400 bytes" in done.out


# ---- the plan


def test_steps_and_threads_follow_from_measured_training_steps(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product that is fast, and steps that are slow with two threads and quicker with one."""
    Path("my.txt").write_text(TEXT * 100)
    monkeypatch.setattr(machine, "thread_counts", lambda _: [2, 1])
    monkeypatch.setattr(machine, "measure_peak", lambda *_: 100e9)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: used.append(count))
    used = [2]
    speeds = {2: 1e9, 1: 10e9}
    monkeypatch.setattr(machine, "measure_speed", lambda *_: speeds[used[-1]])
    recipe, reasons = request.plan_recipe(["my.txt"], ["data.tokenizer=bytes"], 1.0, SINGLE_PROCESS)
    assert recipe.train.threads == 1
    assert any("1 GFLOP/s with 2 threads, 10 with 1; using 1 thread" in line for line in reasons)
    assert any("10% of 100 GFLOP/s, as training steps were measured" in line for line in reasons)
    speeds = {2: 30e9, 1: 20e9}
    faster, reasons = request.plan_recipe(["my.txt"], ["data.tokenizer=bytes"], 1.0, SINGLE_PROCESS)
    assert faster.train.threads == 0 and not any("as training steps" in line for line in reasons)
    work = [plan.steps * plan.data.batch_size * plan.length for plan in (recipe, faster)]
    assert work[0] < work[1]


def test_training_steps_are_measured_quickly_and_leave_no_trace() -> None:
    from pellucid.training.plan import Budget, plan_pretraining

    config = plan_pretraining(10**6, Budget(1, 1e11, 10**9)).config
    before, begun = torch.get_rng_state(), time.perf_counter()
    found = machine.measure_speed(config, 8, 32, "cpu", "float32", 1e11, 0.2)
    assert found is not None and found > 1e6
    assert time.perf_counter() - begun < 5  # 0.3 s where nothing else runs
    assert torch.equal(torch.get_rng_state(), before)
    assert machine.measure_speed(config, 8, 32, "cpu", "float32", 1e3, 0.2) is None  # far too slow to try


# ---- what is refused


def test_a_dry_run_warns_of_a_mask_that_shows_the_targets(shell: Shell) -> None:
    Path("my.txt").write_text(TEXT)
    shown = shell("train", "my.txt", "--dry-run", "model.mask=none", *SMALL)
    assert shown.code == 0 and "warning: model.mask=none" in shown.out


def test_a_run_that_cannot_fit_is_refused_before_anything_is_allocated(shell: Shell) -> None:
    begun = time.perf_counter()
    refused = shell("train", "stories", "out=runs/a", "model.d_model=1048576", "model.n_layer=1000")
    assert refused.code == 3 and "does not fit into memory" in refused.err
    assert time.perf_counter() - begun < 10  # 0.1 s where nothing else runs


@pytest.mark.parametrize("text", ["out = ", "\ufffd\x00", "steps = 3"])
def test_a_mistyped_recipe_is_not_called_damaged(shell: Shell, text: str) -> None:
    Path("my.toml").write_text(text)
    refused = shell("train", "my.toml")
    assert refused.code == 2 and "damaged" not in refused.err


@pytest.mark.parametrize(
    "change", ["train=3", "data=3", "model=3", "train.accumulate=0", "steps=x", "data.x=1"]
)
def test_a_wrong_key_is_refused_before_the_texts_are_read(shell: Shell, change: str) -> None:
    refused = shell("train", "nothing-*.txt", change)
    assert refused.code == 2 and "nothing" not in refused.err, refused.err


@pytest.mark.parametrize("what", ["my.txt", "stories"])
def test_a_start_without_weights_is_refused_before_anything_is_measured(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    Path("my.txt").write_text(TEXT)
    monkeypatch.setattr(machine, "measure_peak", pytest.fail)
    refused = shell("train", what, "start=tiny")
    assert (refused.code, refused.out) == (2, "") and "model=tiny" in refused.err
    assert "model=tiny" in shell("train", "tiny").err


@pytest.mark.parametrize(
    "change", ["model.mask=window", "model.mlp=x", 'model.positions={kind="x"}', "train.initialization=x"]
)
def test_a_wrong_kind_is_refused_before_anything_is_measured(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    Path("my.txt").write_text(TEXT)
    monkeypatch.setattr(machine, "measure_peak", pytest.fail)
    refused = shell("train", "my.txt", change)
    assert (refused.code, refused.out) == (2, "") and len(refused.err.splitlines()) == 1


def test_a_preset_is_trained_on_a_text_by_its_name(shell: Shell) -> None:
    Path("my.txt").write_text(TEXT)
    keys = [key for key in SMALL if not key.startswith("model.")]
    done = shell("train", "my.txt", "--plain", "model=tiny", "model.n_layer=1", *keys)
    assert done.code == 0, done.err
    model = read_recipe("runs/my")["model"]
    assert (model["n_layer"], model["d_model"], model["positions"]) == (1, 128, "sinusoidal")
    assert "1 layer of 128" in done.out and "instead of some of this, as asked: model" not in done.out


def test_a_list_of_texts_can_be_set_as_a_key(shell: Shell) -> None:
    for name in ("a", "b"):
        Path(f"{name}.txt").write_text(TEXT)
    done = shell("train", "stories", "--dry-run", 'data.path=["a.txt", "b.txt"]', "data.tokenizer=bytes")
    assert done.code == 0 and 'path = ["a.txt", "b.txt"]' in done.out


def test_a_dry_run_of_a_resume_refuses_what_the_resume_would_and_needs_no_text(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 40)
    asked = ["data.tokenizer=bytes", "steps=2", "out=runs/a", *SMALL]
    assert shell("train", "a.txt", "--plain", *asked).code == 0
    (tmp_path / "a.txt").unlink()
    (tmp_path / "runs" / "a").rename(tmp_path / "moved")
    more = shell("train", "--resume", "moved", "--dry-run", "steps=4")
    assert more.code == 0 and "steps = 4" in more.out
    assert shell("train", "--resume", "moved", "--dry-run", "steps=1").code == 2
    refused = shell("train", "--resume", "moved", "--dry-run", "optimizer.lr=1")
    assert refused.code == 2 and "optimizer.lr=1" in refused.err
