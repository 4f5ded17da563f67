"""`pellucid train` as people use it: a recipe or a text in, a model out, interrupted and gone on with."""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pellucid
from pellucid.training import request
from pellucid.training.distributed.ranks import SINGLE_PROCESS
from pellucid.training.history.log import figures, read
from pellucid.training.run import Run
from tests.cli.commands import Shell
from tests.cli.fork_server import fork_server
from tests.training import small_models

SMALL = [
    "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4", "train.compile=false",
    "evaluation.batches=1", "evaluation.sample=5", "schedule.warmup=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps, with a checkpoint of every second."""
    line = ["train", "stories", "--plain", "out=a", "steps=4", "checkpoint.every=2", *SMALL]
    place = tmp_path_factory.mktemp("runs")
    done = fork_server().run([*line, "train.on_nonfinite=stop"], place)
    assert done.code == 0, done.text
    return place / "a"


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(made, tmp_path / "a", symlinks=True))


def test_a_recipe_becomes_a_model_that_every_command_opens(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "a"
    done = shell("train", "stories", "--plain", f"out={out}", "steps=4", "evaluation.every=2", *SMALL)
    assert done.code == 0, done.out
    assert "end 4/4 finished" in done.out and f"pellucid generate {out}/model" in done.out
    model = pellucid.load(out / "model")
    assert model.generate("Once upon a time", 3)
    for command in (["generate"], ["inspect"], ["export", "--to", "pellucid", "-o", tmp_path / "b"]):
        whole = shell(*command, out, *(["Once"] if command == ["generate"] else []))
        assert whole.code == 0, whole.err
    kinds = [line["kind"] for line in read(out / "log.jsonl")]
    assert kinds[0] == "start" and kinds[-1] == "end" and kinds.count("step") == 4
    again = shell("train", "stories", f"out={out}", "steps=4", *SMALL)
    assert again.code == 2 and "--resume" in again.err


def test_a_user_s_text_is_enough(shell: Shell) -> None:
    Path("my.txt").write_text("The cat sat on the mat. The dog sat on the log. " * 400)
    done = shell("train", "my.txt", "--plain", "steps=3", *SMALL)
    assert done.code == 0, done.out
    assert "because" in done.out
    assert pellucid.load("runs/my/model").generate("The cat", 2)


@pytest.mark.parametrize(
    "asked",
    [
        ["my.txt", "data.tokenizer=characters"],
        ["my.txt", "data.validation=0.5"],
        ["my.txt", "evaluation.prompt=The dog's"],
        ["task:copy"],
    ],
    ids=" ".join,
)
def test_the_suggested_commands_work_as_printed(asked: list[str], shell: Shell) -> None:
    Path("my.txt").write_text("\n\nThe cat sat on the mat. The dog's on the log.\n" * 400)
    done = shell("train", *asked, "--plain", "steps=1", "out=my runs/a", *SMALL)
    assert done.code == 0, done.err
    command = shlex.split(done.out.rpartition("Try: ")[2])
    assert command[:3] == ["pellucid", "generate", "my runs/a/model"]
    tried = shell(*command[1:])
    assert tried.code == 0 and tried.out.startswith(command[3])


def test_the_suggested_commands_after_conversations_use_the_template(shell: Shell) -> None:
    template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}<end>{% endfor %}<s>assistant: "
    small_models.folder(Path("start"), small_models.LLAMA | {"context_length": 100}, chat_template=template)
    said = [{"role": "user", "content": "The cat?"}, {"role": "assistant", "content": "The dog."}]
    Path("chats.jsonl").write_text(f"{json.dumps({'messages': said})}\n" * 9)
    asked = ["start=start", "steps=1", "out=a", "train.device=cpu", "evaluation.sample=0"]
    done = shell("train", "chats.jsonl", *asked, "--plain")
    assert done.code == 0, done.err
    command = shlex.split(done.out.rpartition("Try: ")[2])
    assert command == ["pellucid", "generate", "a/model", "--chat", "The cat?"]
    tried = shell(*command[1:], "--max-new-tokens", "5")
    assert tried.code == 0 and not tried.out.startswith("The cat?"), tried.err


def test_a_model_that_writes_no_text_is_not_to_be_tried_so(tmp_path: Path, shell: Shell) -> None:
    done = shell("train", "stories", "--plain", f"out={tmp_path / 'a'}", "steps=1", "model.mask=none", *SMALL)
    assert done.code == 0 and "The model is in" in done.out and "Try:" not in done.out


def test_a_plan_counts_the_texts_of_a_folder_and_not_what_lies_beside_them(shell: Shell) -> None:
    Path("my").mkdir()
    Path("my/a.txt").write_text("The cat sat on the mat.\n" * 500)
    alone = shell("train", "my", "--dry-run")
    Path("my/picture.png").write_bytes(bytes(9_000_000))
    assert alone.code == 0 and "the text has 12 kB" in alone.out
    assert "the text has 12 kB" in shell("train", "my", "--dry-run").out
    Path("my/a.txt").unlink()
    assert "the folder my holds no text: no file in it ends in .txt" in shell("train", "my", "--dry-run").err


def test_a_text_that_cannot_be_used_does_not_stand_in_the_way_of_a_better_one(shell: Shell) -> None:
    Path("my.txt").write_text("hi")
    refused = shell("train", "my.txt", "--plain", "steps=1", *SMALL)
    assert refused.code == 2 and "too short" in refused.err
    Path("my.txt").write_text("The cat sat on the mat. " * 200)
    done = shell("train", "my.txt", "--plain", "steps=1", *SMALL)
    assert done.code == 0, done.err


def test_a_user_s_text_teaches_a_model_that_is_there(shell: Shell) -> None:
    Path("my.txt").write_text(small_models.TEXT)
    small_models.folder(Path("start"))
    asked = ["start=start", "lora.rank=2", "train.device=cpu"]
    message = shell("train", "my.txt", "--dry-run", *asked)
    assert message.code == 0 and "because the model is pretrained" in message.out
    assert 'start = "start"' in message.out and "lr = 0.0002" in message.out and not Path("runs").exists()
    done = shell("train", "my.txt", "--plain", "steps=2", *asked)
    assert done.code == 0, done.err
    assert "are trained, in adapters of rank 2 for 14 projections" in done.out
    exported = shell("export", "runs/my/model", "--to", "hf", "-o", "hf")
    assert exported.code == 0, exported.err
    assert pellucid.load("hf").generate("The cat", 2) == pellucid.load("runs/my/model").generate("The cat", 2)
    assert Path("runs/my/adapter/adapter_config.json").is_file()


def test_a_dry_run_prints_the_recipe_and_its_cost_and_touches_nothing(tmp_path: Path, shell: Shell) -> None:
    done = shell("train", "stories", "--dry-run", f"out={tmp_path / 'a'}", "optimizer.lr=3e-4")
    assert done.code == 0, done.out
    for words in ("lr = 0.0003", "parameters ", "operations ", "memory, about ", "time, about "):
        assert words in done.out
    assert not (tmp_path / "a").exists()


def test_a_user_s_text_is_planned_for_the_memory_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's may be many times that of its GPU."""
    monkeypatch.setattr(request, "resolve_device", torch.device)
    monkeypatch.setattr("pellucid.training.machine.measure_peak", lambda *_: 1e15)
    monkeypatch.setattr("pellucid.training.machine.measure_speed", lambda *_: None)
    monkeypatch.setattr(request, "text_bytes", lambda _: 10**9)
    memory = {"cpu": 10**12, "cuda": 2 * 10**9}
    monkeypatch.setattr("pellucid.training.request.get_device_memory", lambda device="cpu": memory[device])
    (tmp_path / "my.txt").write_text("text")

    def rows(device: str) -> int:
        asked = [f"train.device={device}"]
        return request.plan_recipe([str(tmp_path / "my.txt")], asked, 60.0, SINGLE_PROCESS)[0].data.batch_size

    assert rows("cuda") < rows("cpu")


def test_a_dry_run_counts_activations_in_the_type_that_auto_becomes(shell: Shell) -> None:
    def memory(*changes: str) -> str:
        message = shell("train", "stories", "--dry-run", "train.device=cpu", *changes).out
        return next(line for line in message.splitlines() if line.startswith("memory"))

    auto, message = memory("train.weights=bfloat16"), memory("train.weights=bfloat16", "train.dtype=bfloat16")
    assert auto == message != memory()


def test_an_interrupted_run_goes_on_and_its_log_is_that_of_an_uninterrupted_one(
    tmp_path: Path, shell: Shell
) -> None:
    settings = ["steps=30", "evaluation.every=10", "checkpoint.every=10", *SMALL]
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    assert shell("train", "--plain", "stories", f"out={straight}", *settings).code == 0
    line = ["train", "--plain", "stories", f"out={cut}", *settings]
    done = fork_server().run(line, tmp_path, until=b"evaluation 10", then=signal.SIGINT)
    assert done.code == 130 and f"pellucid train --resume {cut}" in done.text
    assert shell("train", "--plain", "--resume", cut).code == 0
    kept = ("step", "evaluation")
    a, b = (
        [line for line in figures(read(out / "log.jsonl")) if line["kind"] in kept] for out in (straight, cut)
    )
    assert a == b and len(a) == 33
    weights = [(out / "model" / "model.safetensors").read_bytes() for out in (straight, cut)]
    assert weights[0] == weights[1]
    assert json.loads((cut / "model" / "config.json").read_text())["model_type"] == "pellucid"


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGHUP, signal.SIGHUP], 129), ([signal.SIGHUP, signal.SIGTERM], 129), ([signal.SIGTERM], 143)],
)
def test_a_signal_saves_and_says_how_to_go_on(
    signals: list[int], code: int, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed terminal sends its signal, and its shell the same once more."""
    step = Run.step

    def signalled(trained: Run) -> object:
        for number in signals * (trained.state.meters.step == 2):
            os.kill(os.getpid(), number)
        return step(trained)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", signalled)
        done = shell("train", "stories", "--plain", f"out={tmp_path / 'a'}", "steps=6", *SMALL)
    assert done.code == code and f"--resume {tmp_path / 'a'}" in done.err
    assert "resuming from step 3 of 6" in shell("train", "--resume", tmp_path / "a", "--plain").out


def test_a_run_under_nohup_is_not_ended_by_a_closed_terminal(tmp_path: Path, shell: Shell) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        shell("train", "stories", "--plain", f"out={tmp_path / 'a'}", "steps=1", *SMALL)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_more_steps_and_the_best_model_are_reported(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, losses = tmp_path / "a", iter([5.0, 4.0, 3.0, 4.5, 4.25])
    monkeypatch.setattr("pellucid.training.evaluate.compute_loss", lambda *_: (next(losses), 0.5))
    asked = ["steps=2", "evaluation.every=1", *SMALL]
    first = shell("train", "stories", "--plain", f"out={out}", *asked)
    assert f"{out}/model (validation loss 4.0000), the best of this run" in first.out
    done = shell("train", "--resume", out, "steps=5", "--plain")
    assert done.code == 0 and "5 steps instead of 2" in done.out
    assert f"(validation loss 4.2500); the best, of step 3 (3.0000), is in {out}/best" in done.out
    (row,) = json.loads(shell("runs", out, "--json").out)
    assert (row["best"], row["best_step"], row["steps"]) == (3.0, 3, 5)
    assert shell("runs", out).out.splitlines()[1].split()[4:6] == ["3.0000", "3"]


def test_a_run_that_is_asked_about_or_finished_is_left_as_it_is(out: Path, shell: Shell) -> None:
    before = (out / "log.jsonl").read_bytes()
    asked = shell("train", "--resume", str(out), "--dry-run")
    assert asked.code == 0 and "steps = 4" in asked.out and "parameters" in asked.out
    again = shell("train", "--resume", str(out))
    assert again.code == 0 and "is finished, at step 4" in again.out
    assert (out / "log.jsonl").read_bytes() == before
    for change in ("optimizer.lr=1", "steps=1"):
        more = shell("train", "--resume", str(out), change)
        assert more.code == 2 and change in more.err


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:-9] + bytes(9)])
def test_a_finished_run_whose_last_checkpoint_is_damaged_goes_on_to_the_same_end(
    damage: Callable[[bytes], bytes], out: Path, shell: Shell
) -> None:
    weights = out / "checkpoints" / "step-0000004" / "model" / "model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(damage(before))
    again = shell("train", "--resume", str(out), "--plain")
    assert again.code == 0 and "end 4/4 finished" in again.out
    assert (out / "model" / "model.safetensors").read_bytes() == before


def test_another_model_is_reported_before_a_step_is_made(out: Path, tmp_path: Path, shell: Shell) -> None:
    shutil.rmtree(out / "checkpoints" / "step-0000004")
    (out / "model" / "README.md").write_text("mine")
    refused = shell("train", "--resume", str(out), "--plain")
    assert refused.code == 2 and "step" not in refused.out and "README.md" in refused.err
    (out / "model" / "README.md").rename(tmp_path / "README.md")
    assert shell("train", "--resume", str(out), "--plain").code == 0


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_recipe_that_was_changed_by_hand_is_that_of_another_run(
    out: Path, shell: Shell, is_finished: bool
) -> None:
    recipe = (out / "recipe.toml").read_text()
    assert "steps = 4\n" in recipe
    (out / "recipe.toml").write_text(recipe.replace("steps = 4\n", "steps = 6\n"))
    lines = (out / "log.jsonl").read_text().splitlines()
    (out / "log.jsonl").write_text("\n".join(lines[: None if is_finished else -1]) + "\n")
    refused = shell("train", "--resume", str(out), "--plain")
    assert refused.code == 2 and "steps was 4 when the run was saved, and is 6 now" in refused.err


def test_a_run_without_finite_gradients_is_stopped_and_says_what_would_work(
    tmp_path: Path, shell: Shell
) -> None:
    out = tmp_path / "a"
    wild = [
        "optimizer.kind=sgd",
        "optimizer.lr=1e30",
        "train.clip=0",
        "train.on_nonfinite=stop",
        "steps=9",
        *SMALL,
    ]
    done = shell("train", "stories", "--plain", f"out={out}", *wild)
    assert done.code == 1 and "with a smaller optimizer.lr, and another out" in done.err
    assert "stopped" in shell("runs", str(tmp_path)).out


def test_a_run_of_0_steps_has_no_loss_and_one_without_checkpoints_says_so(
    tmp_path: Path, shell: Shell
) -> None:
    done = shell("train", "stories", "--plain", f"out={tmp_path / 'a'}", *SMALL, "steps=0")
    assert done.code == 0 and "end 0/0 finished" in done.out and "nan" not in done.out
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    done = shell("train", "--resume", tmp_path / "a")
    assert done.code == 0 and "has no checkpoint" in done.out and "at step" not in done.out
