"""`pellucid train` on several ranks, as torchrun begins them: one log, one voice, and a clear end."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.cli import main
from pellucid.training.history.log import figures, read
from tests.training.distributed.forked import Job

SMALL = [
    "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4", "train.compile=false",
    "evaluation.batches=1", "evaluation.sample=5", "schedule.warmup=2", "train.timeout=20",
]  # fmt: skip


def ran(
    folder: Path, *commands: list[str], meanwhile: Callable[[Job], object] = lambda _: None
) -> list[tuple[int, str]]:
    """Exit code and output of each rank, given a command of its own."""

    def rank(number: int) -> None:
        sys.argv = ["pellucid", *commands[number]]
        out = os.open(folder / f"rank-{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(out, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code: Any = 0
        try:
            main()
        except SystemExit as done:
            code = done.code
        sys.stdout.flush()
        sys.stderr.flush()
        (folder / f"rank-{number}.code").write_text(str(code or 0))

    job = Job(len(commands), rank)
    meanwhile(job)
    job.results()
    message = [(folder / f"rank-{number}.txt").read_text() for number in range(len(commands))]
    written = [folder / f"rank-{number}.code" for number in range(len(commands))]
    codes = [  # who leaves at once writes none
        int(file.read_text()) if file.exists() else job.codes[pid]
        for file, pid in zip(written, job.pids, strict=True)
    ]
    # what torch says of itself comes here because it was imported before the command could ask for silence
    return [
        (code, re.sub(r"\[rank\d\]:\[W.*\n", "", words)) for code, words in zip(codes, message, strict=True)
    ]


def test_a_text_becomes_one_model_with_one_log_and_one_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text("The cat sat on the mat. The dog sat on the log. " * 400)
    command = ["train", "my.txt", "--plain", "steps=4", "checkpoint.every=2", "evaluation.every=2", *SMALL]
    (code, out), (other, nothing) = ran(tmp_path, command, command)
    assert (code, other, nothing) == (0, 0, ""), out
    assert out.count("tokenizer: bpe") == 1 and out.count("end 4/4 finished") == 1
    assert pellucid.load("runs/my/model").generate("The cat", 2)
    steps = [line["step"] for line in read(Path("runs/my/log.jsonl")) if line["kind"] == "step"]
    assert steps == [1, 2, 3, 4]


def test_a_run_goes_on_bit_for_bit_on_as_many_ranks_and_says_so_where_they_are_not(tmp_path: Path) -> None:
    usual = ["--plain", "steps=6", "checkpoint.every=3", "evaluation.every=3", "train.parallel=fsdp", *SMALL]
    begin = ["train", "stories", f"out={tmp_path / 'straight'}", *usual]
    assert [code for code, _ in ran(tmp_path, begin, begin)] == [0, 0]
    shutil.copytree(tmp_path / "straight", tmp_path / "cut", symlinks=True)
    (tmp_path / "cut" / "checkpoints" / "step-0000006" / "manifest.json").unlink()
    again = ["train", "--plain", "--resume", str(tmp_path / "cut")]
    (code, out), _ = ran(tmp_path, again, again)
    assert code == 0 and "skipped the checkpoint of step 6" in out and "from step 3" in out
    assert "no longer" not in out
    logs = [figures(read(tmp_path / name / "log.jsonl")) for name in ("straight", "cut")]
    assert logs[0] == logs[1]
    (tmp_path / "cut" / "checkpoints" / "step-0000006" / "manifest.json").unlink()
    ((code, out),) = ran(tmp_path, [*again, "train.parallel=ddp"])
    assert code == 0, out
    assert "the number of ranks was 2, and is 1 now" in out


def test_all_ranks_finish_the_step_and_save_when_one_gets_a_signal(tmp_path: Path) -> None:
    out = tmp_path / "a"
    command = ["train", "stories", "--plain", f"out={out}", "steps=100000", *SMALL]

    def tell(job: Job) -> None:
        wait_for(out, 5)
        os.kill(job.pids[1], signal.SIGTERM)

    (code, message), (other, nothing) = ran(tmp_path, command, command, meanwhile=tell)
    assert (code, other, nothing) == (143, 143, "")
    assert message.count("pellucid train --resume") == 1
    *_, saved, last = read(out / "log.jsonl")
    assert (saved["kind"], last["kind"]) == ("saved", "interrupted") and saved["step"] == last["step"] >= 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["steps=3", "optimizer.lr=1e-3"], ["steps=3", "optimizer.lr=2e-3"]),
        (["steps=3", "data.batch_size=5"], None),
        (["stepz=3"], None),
    ],
    ids=["not the same", "does not split", "no such key"],
)
def test_a_usage_error_is_reported_once(tmp_path: Path, changes: list[str], words: list[str] | None) -> None:
    usual = ["train", "stories", "--plain", f"out={tmp_path / 'a'}", *SMALL]
    first, second = ran(tmp_path, [*usual, *changes], [*usual, *(words or changes)])
    assert (first[0], second[0]) == (2, 2)
    message = first[1] + second[1]
    assert message.count("pellucid: ") == 1 and "Traceback" not in message
    wanted = {"stepz=3": "got 'stepz'", "data.batch_size=5": "does not split into 2 ranks"}
    assert wanted.get(changes[-1], "optimizer.lr is 0.001 on rank 0 and 0.002 on rank 1") in message
    assert not (tmp_path / "a" / "recipe.toml").exists()


# ---- torchrun itself


@pytest.mark.timed
def test_a_killed_rank_ends_the_job_and_is_named(tmp_path: Path) -> None:
    """Above 10 s on a busy machine: torchrun and two ranks each import torch."""
    out = tmp_path / "a"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "pellucid.cli"]
    command += ["train", "stories", "--plain", f"out={out}", "steps=100000", *SMALL]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(out, 3)
    ranks = [int(child) for child in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    assert len(ranks) == 2
    os.kill(max(ranks), signal.SIGKILL)
    begun = time.monotonic()
    message, _ = job.communicate(timeout=60)
    seconds = time.monotonic() - begun
    assert job.returncode != 0 and seconds < 5
    assert re.search(r"pellucid: lost rank [01] \(process \d+ on ", message)
    assert message.count("pellucid: ") == 1
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


def wait_for(out: Path, step: int, seconds: float = 60.0) -> None:
    """Until the log has this step."""
    until, log = time.monotonic() + seconds, out / "log.jsonl"
    while not log.exists() or max((line["step"] for line in read(log)), default=0) < step:
        assert time.monotonic() < until
        time.sleep(0.02)
