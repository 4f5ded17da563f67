"""Memory that is full ends a run with advice: what is on the disk is of whole steps only."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pellucid.base.errors import ResourceError
from pellucid.training import memory
from pellucid.training.history.log import read
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.resume import begin
from pellucid.training.saving.run_folder import RunFolder
from tests.training.small_run_folders import go_on
from tests.training.small_runs import recipe

FULL = {
    "cuda:0": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": MemoryError(),
    "the host": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
}


@pytest.mark.parametrize("where", FULL)
def test_the_message_says_what_needs_less(where: str) -> None:
    asked = recipe("data.batch_size=12", "train.accumulate=2")
    with (
        pytest.raises(ResourceError, match=f"memory of {where} .* step 8,") as caught,
        memory.explain_out_of_memory(asked, where, lambda: 7),
    ):
        raise FULL[where]
    assert "6 rows of 6 tokens at once" in str(caught.value)
    for way in (
        "train.accumulate=4 (the same batch, 3 rows",
        "train.activation_checkpointing=true",
        "train.logits_chunk=4096",
    ):
        assert way in str(caught.value)
    assert "model.context_length=3" in str(caught.value)


def test_what_is_done_already_is_not_advised() -> None:
    asked = recipe("train.accumulate=4", "train.activation_checkpointing=true", "train.logits_chunk=8")
    with pytest.raises(ResourceError) as caught, memory.explain_out_of_memory(asked, "cpu", lambda: 0):
        raise MemoryError
    assert "train." not in str(caught.value) and "a smaller model" in str(caught.value)


def test_another_error_is_itself() -> None:
    explained = memory.explain_out_of_memory(recipe(), "cpu", lambda: 0)
    with pytest.raises(RuntimeError, match="shapes"), explained:
        raise RuntimeError("shapes do not fit")


def test_a_run_whose_memory_is_full_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    small = [
        "steps=6", "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4",
        "train.accumulate=2", "evaluation.every=9", "evaluation.batches=1", "checkpoint.every=2",
    ]  # fmt: skip
    folder = RunFolder(tmp_path / "a")
    with folder.lock():
        run = begin(Recipe.from_dict(override(read_table("task:copy"), small)), folder, lambda _: None)
        run.state.loss = _full_at(8, run.state.loss)  # in the second half of step 4
        with pytest.raises(ResourceError, match=r"step 4,.*train\.accumulate=4"):
            list(run.events())
    assert folder.read_status() == ("interrupted", 2)
    assert [line["step"] for line in read(folder.path / "log.jsonl") if line["kind"] == "step"] == [1, 2, 3]
    go_on(folder.path)
    assert folder.read_status() == ("finished", 6)


def _full_at(call: int, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    calls = iter(range(1, call + 1))

    def counted(*batch: torch.Tensor) -> torch.Tensor:
        if next(calls) == call:
            raise FULL["cuda:0"]
        return loss(*batch)

    return counted
