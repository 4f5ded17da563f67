"""A run in its folder: what its log says, how it begins, is saved, goes on and is given more steps."""

import shutil
import tomllib
from pathlib import Path

import pytest

from pellucid.base.errors import ConfigError, PellucidError, UsageError
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.events import Saved
from pellucid.training.history.log import read
from pellucid.training.machine import find_peak
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.resume import begin, is_complete
from pellucid.training.run import SAVE
from pellucid.training.saving.run_folder import RunFolder, Status
from pellucid.verification.runs.rebuild import rebuild_step
from tests.training import small_models
from tests.training.small_run_folders import go_on, recipe, train, trained
from tests.training.small_runs import make_run

DROPOUT = "model.dropout={kind='bernoulli', output=0.25}"
SMALL = [
    "steps=2", "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4",
    "evaluation.every=2", "evaluation.batches=1", "evaluation.sample=2",
]  # fmt: skip


def test_the_log_has_the_share_of_the_peak_and_the_floor_with_the_gap_to_it(tmp_path: Path) -> None:
    train(Recipe.from_dict(override(read_table("stories"), [*SMALL, f"out={tmp_path / 'a'}"])))
    lines = {line["kind"]: line for line in read(tmp_path / "a" / "log.jsonl")}
    step, judged = lines["step"], lines["evaluation"]
    work = step["tokens_per_second"] * lines["start"]["flops_per_token"]
    assert step["mfu"] == pytest.approx(work / find_peak("cpu", "float32"))
    assert judged["floor"] == lines["start"]["floor"] > 0
    assert judged["gap"] == judged["loss"] - judged["floor"]
    assert judged["learned"] < 1 and 0 <= judged["accuracy"] <= 1
    assert "epoch" not in step  # stories have no end


def test_the_log_counts_epochs_where_a_text_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("The cat sat on the mat. " * 50)
    sizes = ("data.tokenizer=bytes", "data.batch_size=5", "model.n_layer=1", "evaluation.sample=0")
    trained(tmp_path / "a", f"data.path={tmp_path / 'my.txt'}", *sizes)
    lines = [line for line in read(tmp_path / "a" / "log.jsonl") if line["kind"] in ("step", "evaluation")]
    tokens = len("The cat sat on the mat. " * 50) * 0.9
    for line in lines:
        assert line["epoch"] == pytest.approx(line["step"] * 5 * 18 / tokens, rel=0.02)


# ---- a start that is refused


def tree(path: Path) -> dict[str, bytes]:
    """Every file and folder below a folder, with what is in it."""
    found = sorted(path.rglob("*"))
    return {str(one.relative_to(path)): one.read_bytes() if one.is_file() else b"" for one in found}


@pytest.mark.parametrize("text", [b"abc\xff", b"hi"], ids=["not UTF-8", "too short"])
def test_a_refused_start_removes_what_it_made_and_nothing_else(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_bytes(text)
    (tmp_path / "runs").mkdir()
    before = tree(tmp_path)
    table = small_models.table(tmp_path / "runs" / "deep" / "a", "", tmp_path / "my.txt")
    changes = ("model.n_layer=1", "model.d_model=8", "model.n_head=1", "train.tensorboard=false")
    with pytest.raises(PellucidError):
        small_models.started(table, *changes)
    assert tree(tmp_path) == before


def test_a_start_in_a_project_deletes_nothing_of_it(tmp_path: Path) -> None:
    """The user's tokens and tokenizer are in the place of the run's."""
    for name in ("data/tokens/train.bin", "data/tokenizer/tokenizer.json", "data/source.json", "my.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"mine\xff")
    before = tree(tmp_path)
    with pytest.raises(UsageError):
        small_models.started(small_models.table(tmp_path, "", tmp_path / "my.txt"), "model.n_layer=1")
    assert tree(tmp_path) == before


# ---- saved by the clock, and the best


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_run_saves_after_some_minutes_and_goes_on_from_there_bit_for_bit(tmp_path: Path) -> None:
    settings = ("checkpoint.every=100", DROPOUT)
    trained(tmp_path / "straight", *settings, "checkpoint.minutes=0")
    folder = RunFolder(tmp_path / "cut")
    with folder.lock():
        run = begin(recipe(folder.path, *settings, "checkpoint.minutes=1e-9"), folder, lambda _: None)
        for event in run.events():
            if isinstance(event, Saved) and event.step == 3:
                break  # as if it had been killed here, between two evaluations
    assert folder.find_newest()[0] == folder.checkpoints / "step-0000003"
    go_on(folder.path)
    assert weights(folder.path / "model") == weights(tmp_path / "straight" / "model")
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-0000006"]


def test_a_checkpoint_that_is_overdue_on_one_rank_is_saved_by_all() -> None:
    class Others(Ranks):
        def agree(self, word: str) -> str:
            return word or SAVE

    run = make_run()
    run.ranks = Others()
    assert run._agree(is_save_overdue=False) == SAVE
    run.request_stop()
    assert run._agree(is_save_overdue=True) == "interrupted"


def evaluations(path: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in read(path / "log.jsonl") if line["kind"] == "evaluation"}


def test_the_best_model_is_that_of_the_lowest_validation_loss(tmp_path: Path) -> None:
    path = tmp_path / "a"
    trained(
        path, "steps=12", "evaluation.every=1", "checkpoint.every=1", "checkpoint.keep=20", "optimizer.lr=0.3"
    )
    found, losses = RunFolder(path).read_best(), evaluations(path)
    step = min(losses, key=losses.__getitem__)
    assert found is not None and (found.step, found.loss) == (step, losses[step]) and step < 12
    assert weights(path / "best") == weights(path / "checkpoints" / f"step-{step:07d}" / "model")
    saved = [
        line for line in read(path / "log.jsonl") if line["kind"] == "saved" and line["loss"] is not None
    ]
    assert saved[-1]["step"] == step and saved[-1]["loss"] == losses[step]


def test_the_best_model_is_kept_only_where_it_is_asked_for(tmp_path: Path) -> None:
    trained(tmp_path / "a", "checkpoint.keep_best=false")
    assert not (tmp_path / "a" / "best").exists()


def test_on_a_slow_disk_the_best_model_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.training.run.BEST_SECONDS", -1.0)
    monkeypatch.setattr("pellucid.training.run.BEST_SHARE", 0.0)
    trained(tmp_path / "a", "evaluation.every=1")
    found, losses = RunFolder(tmp_path / "a").read_best(), evaluations(tmp_path / "a")
    assert found is not None and (found.step, found.loss) == (6, losses[6])


# ---- more steps


def rates(path: Path) -> list[float]:
    return [line["lr"] for line in read(path / "log.jsonl") if line["kind"] == "step"]


def test_a_finished_run_can_be_given_more_steps(tmp_path: Path) -> None:
    path = tmp_path / "a"
    trained(path)
    before, first = rates(path), RunFolder(path)
    assert first.read_status() == Status("finished", 6)
    message = list[str]()
    go_on(path, "steps=10", stop=8, report=message.append)
    assert "10 steps instead of 6" in message[0] and "cosine" in message[0]
    assert RunFolder(path).read_status() == Status("interrupted", 8)
    go_on(path)
    assert RunFolder(path).read_status() == Status("finished", 10)
    planned = Recipe.from_dict(RunFolder(path).read_recipe())
    assert (planned.steps, planned.extensions) == (10, ((6, 6),))
    schedule = planned.schedule
    assert rates(path) == before + [planned.optimizer.lr * schedule.factor(at, 10) for at in range(6, 10)]
    assert [line["steps"] for line in read(path / "log.jsonl") if line["kind"] in ("start", "resume")] == [
        6,
        10,
        10,
    ]
    for step in (5, 6, 7, 10):  # with the total of its own time
        done = rebuild_step(path, step, ("embed.weight",))
        assert done.is_exact and done.judge("embed.weight").bugs == []


def test_the_recipe_of_a_run_with_more_steps_makes_the_same_run(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    settings = (DROPOUT, "evaluation.every=4")
    trained(a, *settings)
    go_on(a, "steps=9")
    train(Recipe.from_dict(tomllib.loads((a / "recipe.toml").read_text()) | {"out": str(b)}))
    assert weights(a / "model") == weights(b / "model") and evaluations(a) == evaluations(b)


def test_a_run_that_falls_back_behind_its_extension_makes_the_same_steps_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    trained(path)
    go_on(path, "steps=9")
    before = weights(path / "model")
    for step in (6, 8, 9):
        shutil.rmtree(path / "checkpoints" / f"step-{step:07d}", ignore_errors=True)
    go_on(path)
    assert weights(path / "model") == before


def test_a_trained_model_whose_checkpoints_are_gone_is_not_trained_over(tmp_path: Path) -> None:
    """Who removes checkpoints to save space, and then asks for more steps, keeps the model."""
    path = tmp_path / "a"
    trained(path)
    before = {part: weights(path / part) for part in ("model", "best") if (path / part).is_dir()}
    recipe = (path / "recipe.toml").read_bytes()
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(UsageError, match="no complete checkpoint"):
        go_on(path, "steps=9")
    assert all(weights(path / part) == held for part, held in before.items())
    assert (path / "recipe.toml").read_bytes() == recipe


def test_an_interrupted_run_can_be_given_another_end_but_none_in_its_past(tmp_path: Path) -> None:
    path = tmp_path / "a"
    trained(path)
    shutil.rmtree(path / "checkpoints" / "step-0000006")
    for steps in (3, 4):
        with pytest.raises(UsageError, match="4 steps"):
            go_on(path, f"steps={steps}")
    go_on(path, "steps=5")
    assert RunFolder(path).read_recipe()["extensions"] == [[4, 6]]
    assert RunFolder(path).read_status() == Status("finished", 5)


def test_more_steps_that_a_killed_process_had_only_written_down_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a"
    trained(path)
    folder = RunFolder(path)
    assert (
        is_complete(folder, ())
        and is_complete(folder, ("steps=6",))
        and not is_complete(folder, ("steps=9",))
    )
    with folder.lock():
        folder.write_recipe(Recipe.from_dict(folder.read_recipe()).extend(6, 9).to_toml())
    assert not is_complete(RunFolder(path), ())


@pytest.mark.parametrize("given", [[[3, 2]], [[4, 6], [4, 8]], [[0, 6]], [[20, 30]], [[1]], "x", [[1.0, 2]]])
def test_extensions_that_no_run_has_are_refused(given: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="extensions"):
        Recipe.from_dict(recipe(tmp_path).to_dict() | {"extensions": given})
