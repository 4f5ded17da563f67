"""A step that is made again is the step of the run to the bit, and the specification's to the last digits."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.base.errors import AddressError, FileError, UsageError
from pellucid.data.prepare import prepare
from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.parts import kinds
from pellucid.text.corpus import Corpus
from pellucid.training import step
from pellucid.training.events import Skipped, Stepped
from pellucid.training.history.log import read
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.saving import checkpoint
from pellucid.training.state import TrainState
from pellucid.verification.mismatch import find_first_mismatch
from pellucid.verification.runs.rebuild import PastRun, rebuild_step
from pellucid.verification.runs.rebuilt_step import RebuiltStep
from tests.training.small_run_folders import trained
from tests.verification.conftest import CopyRun

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
SAVED = ("checkpoint.every=1",)


def same_as_saved(path: Path, done: RebuiltStep) -> None:
    """The replay's own weights bit for bit, and those of every tape to 1e-12."""
    saved = checkpoint.read(path / "checkpoints" / checkpoint_name(done.step))
    assert done.updates.keys() == saved.weights.keys()
    for name, kept in done.updates.items():
        assert np.array_equal(kept.new, saved.get_trainable(name).double().numpy()), name
        assert done.matches_checkpoint(name) is True
    ours = {name: done.trace(name).value(f"{name}@{done.step}") for name in done.updates}
    theirs = {
        name: weight.double().numpy() for name in saved.weights for weight in [saved.get_trainable(name)]
    }
    assert find_first_mismatch(ours, theirs, 1e-12) is None
    assert done.remarks == ()


@pytest.mark.parametrize("kind", kinds("optimizers"))
def test_a_step_made_again_is_the_run_s_and_the_specification_s(kind: str, tmp_path: Path) -> None:
    """From the checkpoint before it, and from the beginning."""
    trained(tmp_path / "a", f"optimizer.kind={kind}", "optimizer.lr=0.01", "steps=3", *SAVED)
    near = rebuild_step(tmp_path / "a", 3)
    assert (near.step, near.start) == (3, 2)
    same_as_saved(tmp_path / "a", near)
    for number in (1, 2):
        shutil.rmtree(tmp_path / "a" / "checkpoints" / checkpoint_name(number))
    far = rebuild_step(tmp_path / "a", 3)
    assert far.start == 0
    same_as_saved(tmp_path / "a", far)
    for name in near.updates:
        assert near.judge(name).verdict in ("equal", "noise"), name


@pytest.mark.parametrize(
    "changes",
    [
        ("train.accumulate=2", "train.ema=0.9", DROPOUT),
        ("optimizer.beta2_start=0.9", "optimizer.beta2_warmup=9", "train.clip=0"),
        ("optimizer.kind=muon", DROPOUT, "train.ema=0.5"),
        ("train.label_smoothing=0.1", "train.z_loss=1e-3", "train.logits_chunk=5"),
        ("train.freeze=embed.*", "model.unembedding=linear"),
    ],
    ids=["parts, mean and dropout", "β₂ warms up", "muon", "chunks", "frozen"],
)
def test_whatever_the_step_consists_of(changes: tuple[str, ...], tmp_path: Path) -> None:
    """Evaluations lie between the checkpoint and the step, and have no part in it."""
    trained(tmp_path / "a", *changes, "checkpoint.every=2")
    same_as_saved(tmp_path / "a", rebuild_step(tmp_path / "a", 4))
    last = rebuild_step(tmp_path / "a", 6)
    same_as_saved(tmp_path / "a", last)
    if "train.ema=0.9" in changes:
        saved, tape = (
            checkpoint.read(tmp_path / "a/checkpoints/step-0000006"),
            last.trace("embed.weight").tape,
        )
        assert tape["embed.weight.ema@6"] == pytest.approx(
            saved.get_average("embed.weight").numpy(), rel=1e-12
        )


@pytest.mark.parametrize(
    "changes",
    [("train.dtype=float32",), ("train.dtype=bfloat16", "train.weights=bfloat16")],
    ids=["float32", "bfloat16 with masters"],
)
def test_in_a_narrower_type_the_difference_is_rounding_and_no_more(
    changes: tuple[str, ...], copy_run: CopyRun, tmp_path: Path
) -> None:
    copy_run(tmp_path / "a", *changes)
    done = rebuild_step(tmp_path / "a", 6)
    name = "blocks.1.mlp.up_proj.weight"
    assert done.updates[name].type == "float32" and done.matches_checkpoint(name)
    assert done.judge(name).verdict == "noise"
    apart = np.abs(done.trace(name).value(f"{name}@6") - done.updates[name].new).max()
    assert 0 < apart < 1e-7


def test_a_wrong_update_would_be_called_a_bug(copy_run: CopyRun, tmp_path: Path) -> None:
    copy_run(tmp_path / "a", "train.dtype=float32")
    done, name = rebuild_step(tmp_path / "a", 6), "blocks.1.mlp.up_proj.weight"
    kept = done.updates[name]
    kept.new[1, 2] *= 1.00001
    assert [bug.name for bug in done.judge(name).bugs] == [f"{name}@6"]
    assert done.matches_checkpoint(name) is False


def test_only_a_gpu_may_hold_beta_in_float32(tmp_path: Path) -> None:
    """Seen on an H200 with β₂ = 0.98: v was 15.3 units off, as 1 − β₂ is where β₂ is a float32. Here m is as
    a processor has it, so that neither way explains both. The gradient must not fall, or β₂ v hides it."""
    changes = ("train.dtype=float32", "optimizer.beta1=0.98", "optimizer.beta2=0.98")
    trained(tmp_path / "a", "train.initialization=gpt2", *changes)
    done, name = rebuild_step(tmp_path / "a", 6), "blocks.1.mlp.up_proj.weight"
    kept, beta = done.updates[name], np.float32(0.98)
    assert kept.clipped is not None
    v = beta * np.float32(kept.moments["v"]) + (1 - beta) * np.float32(kept.clipped) ** 2
    narrow = replace(done, updates={name: kept._replace(new_moments=kept.new_moments | {"v": np.float64(v)})})
    assert [bug.name for bug in narrow.judge(name).bugs] == [f"{name}.v@6"]
    assert replace(narrow, device="cuda").judge(name).bugs == []
    v[0, 0] *= np.float32(1.00001)
    wrong = replace(done, updates={name: kept._replace(new_moments=kept.new_moments | {"v": np.float64(v)})})
    assert [bug.name for bug in replace(wrong, device="cuda").judge(name).bugs] == [f"{name}.v@6"]


def test_a_parameter_that_does_not_learn_stays_and_says_why(tmp_path: Path) -> None:
    trained(tmp_path / "a", "train.freeze=embed.*", "model.unembedding=linear")
    past = PastRun(tmp_path / "a")
    done = past.rebuild(3)
    tape = done.trace("embed.weight").tape
    assert np.array_equal(tape["embed.weight@3"], tape["embed.weight@2"])
    assert done.why_frozen("embed.weight") == "train.freeze = ['embed.*']"
    assert done.why_frozen("unembed.weight") == ""
    assert "embed.weight" not in done.grad_norms


def test_a_skipped_update_is_replayed_as_such_and_later_ones_count_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam corrects the bias for the updates that there were: four at step 5."""
    right = step.forward_backward

    def broken(state: TrainState, batch: DeviceBatch) -> tuple[torch.Tensor, int]:
        loss, tokens = right(state, batch)
        return (loss * float("nan") if state.meters.step == 2 else loss), tokens

    monkeypatch.setattr(step, "forward_backward", broken)
    events = trained(tmp_path / "a", *SAVED)
    assert [event.step for event in events if isinstance(event, Skipped)] == [3]
    done = rebuild_step(tmp_path / "a", 3)
    assert isinstance(done.event, Skipped) and done.remarks == ()
    tape = done.trace("embed.weight").tape
    for ending in ("", ".m", ".v"):
        assert np.array_equal(tape[f"embed.weight{ending}@3"], tape[f"embed.weight{ending}@2"])
    later = rebuild_step(tmp_path / "a", 5)
    assert later.updates["embed.weight"].updates == 3
    same_as_saved(tmp_path / "a", later)


def test_the_figures_of_the_log_are_the_replay_s(copy_run: CopyRun, tmp_path: Path) -> None:
    copy_run(tmp_path / "a")
    done = rebuild_step(tmp_path / "a", 3)
    line = next(
        line for line in read(tmp_path / "a" / "log.jsonl") if line["kind"] == "step" and line["step"] == 3
    )
    assert isinstance(done.event, Stepped)
    assert (done.event.loss, done.event.lr, done.event.grad_norm) == (
        line["loss"],
        line["lr"],
        line["grad_norm"],
    )
    tape = done.trace("embed.weight").tape
    assert float(tape["grad_norm@3"]) == pytest.approx(line["grad_norm"], rel=1e-12)
    assert float(tape["clip@3"]) == pytest.approx(0.1 / line["grad_norm"], rel=1e-12)


def test_a_log_that_says_otherwise_is_never_passed_over_in_silence(copy_run: CopyRun, tmp_path: Path) -> None:
    copy_run(tmp_path / "a")
    log = tmp_path / "a" / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"kind": "step", "step": 3,' in line)
    loss = next(line["loss"] for line in read(log) if line["kind"] == "step" and line["step"] == 3)
    lines[at] = lines[at].replace(repr(loss), "1.5", 1)
    log.write_text("".join(lines))
    assert rebuild_step(tmp_path / "a", 3).remarks == (f"loss is {loss!r} here, and 1.5 in the log",)
    assert rebuild_step(tmp_path / "a", 4).remarks == ()


def test_a_second_replay_from_the_beginning_reads_the_same_rows(copy_run: CopyRun, tmp_path: Path) -> None:
    copy_run(tmp_path / "a")
    past = PastRun(tmp_path / "a")
    for _ in range(2):
        assert past.rebuild(2).remarks == ()


def test_nothing_is_written_and_nothing_of_the_caller_is_changed(tmp_path: Path) -> None:
    """Also while another process trains in the folder: no lock is needed."""
    trained(tmp_path / "a", DROPOUT)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
    rng, threads, loaders = torch.get_rng_state(), torch.get_num_threads(), _list_loaders()
    folder = PastRun(tmp_path / "a").folder
    with folder.lock():
        held = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
        rebuild_step(tmp_path / "a", 3)
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")} == held
    assert before.keys() == held.keys()
    assert torch.equal(rng, torch.get_rng_state()) and threads == torch.get_num_threads()
    assert not _list_loaders() - loaders


def _list_loaders() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pellucid-loader"}


def test_an_interrupted_replay_leaves_nothing_running(copy_run: CopyRun, tmp_path: Path) -> None:
    copy_run(tmp_path / "a")
    loaders = _list_loaders()

    def interrupt(at: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild_step(tmp_path / "a", 4, progress=interrupt)
    assert not _list_loaders() - loaders
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    trained(tmp_path / "a", *SAVED)
    weights = tmp_path / "a" / "checkpoints" / checkpoint_name(4) / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    done = rebuild_step(tmp_path / "a", 5)
    assert done.start == 3
    same_as_saved(tmp_path / "a", done)


def test_what_cannot_be_replayed_is_reported(tmp_path: Path) -> None:
    trained(tmp_path / "a", "steps=3")
    with pytest.raises(UsageError, match=r"3 of 3 updates.* 4: .*@3"):
        rebuild_step(tmp_path / "a", 4)
    with pytest.raises(AddressError, match=r"embed\.wait.*embed\.weight"):
        PastRun(tmp_path / "a").parameter("embed.wait")
    with pytest.raises(UsageError, match="is not a run folder"):
        rebuild_step(tmp_path / "b", 1)


def test_a_run_of_a_text_needs_only_what_it_made_of_it(tmp_path: Path) -> None:
    """The text itself may be gone; the token files may not."""
    text = tmp_path / "my.txt"
    text.write_text("The cat sat on the mat. The dog sat on the log. " * 60)
    trained(tmp_path / "a", f'data.path="{text}"', "data.tokenizer=characters")
    text.unlink()
    same_as_saved(tmp_path / "a", rebuild_step(tmp_path / "a", 6))
    shutil.rmtree(tmp_path / "a" / "data")
    with pytest.raises(FileError, match="data"):
        rebuild_step(tmp_path / "a", 6)
    assert not (tmp_path / "a" / "data").exists()


def test_token_files_that_were_made_anew_are_noticed(tmp_path: Path) -> None:
    from pellucid.base.errors import PellucidError
    from pellucid.text.kinds import train as learn

    text = tmp_path / "my.txt"
    text.write_text("The cat sat on the mat. The dog sat on the log. " * 60)
    learn("characters", [text.read_text()]).save(tmp_path / "tokenizer")
    prepare(Corpus([str(text)], validation=0.0), tmp_path / "tokenizer", tmp_path / "tokens", 1)
    trained(tmp_path / "a", f'data.path="{tmp_path / "tokens"}"', "data.validation=0")
    shutil.rmtree(tmp_path / "tokens")
    text.write_text("The cat sat on the log. The dog sat on the mat. " * 50)
    prepare(Corpus([str(text)], validation=0.0), tmp_path / "tokenizer", tmp_path / "tokens", 1)
    with pytest.raises(PellucidError, match="data loader's state"):
        rebuild_step(tmp_path / "a", 6)
