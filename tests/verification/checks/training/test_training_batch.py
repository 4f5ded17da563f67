"""Which targets of a batch are wrong, and what a wrong one is called."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.names import IGNORE_INDEX as NONE
from pellucid.data.rows import Batch
from pellucid.data.sources.generated import GeneratedRows
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.training_batch import find_wrong_target, measure_batch
from tests.training.small_run_folders import trained


@pytest.mark.parametrize(
    ("ids", "targets", "segments"),
    [
        ([1, 2, 3, 4], [2, 3, 4, 9], None),
        ([1, 2, 3, 4], [NONE, 3, NONE, 9], None),
        ([1, 2, 0, 0], [2, 3, NONE, NONE], None),  # the last target before padding
        ([1, 2, 5, 6], [2, 3, 6, 7], [0, 0, 1, 1]),  # the last one of a document
        ([1, 2, 3, 4], [NONE] * 4, None),
    ],
)
def test_right_targets_are_right(ids: list[int], targets: list[int], segments: list[int] | None) -> None:
    given = None if segments is None else np.array([segments])
    assert find_wrong_target(Batch(np.array([ids]), np.array([targets]), given)) is None


@pytest.mark.parametrize(
    ("ids", "targets", "segments", "place"),
    [
        ([1, 2, 3, 4], [3, 4, 5, 6], None, (0, 0)),
        ([1, 2, 3, 4], [2, 2, 4, 9], None, (0, 1)),
        ([1, 2, 5, 6], [2, 3, 5, 7], [0, 0, 1, 1], (0, 2)),
    ],
)
def test_a_wrong_target_is_found(
    ids: list[int], targets: list[int], segments: list[int] | None, place: tuple[int, int]
) -> None:
    given = None if segments is None else np.array([segments])
    assert find_wrong_target(Batch(np.array([ids]), np.array([targets]), given)) == place


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda targets: np.roll(targets, -1, axis=1), "the targets are those of 1 position later"),
        (lambda targets: np.hstack([0 * targets[:, :1] + NONE, targets[:, :-1]]), "1 position earlier"),
    ],
)
def test_the_message_has_both_tokens_and_the_shift(
    change: Callable[[np.ndarray], np.ndarray],  # type: ignore[type-arg]
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = GeneratedRows.take

    def take(self: GeneratedRows, count: int, local: slice) -> Batch:
        batch = right(self, count, local)
        return Batch(batch.ids, change(batch.targets))

    monkeypatch.setattr(GeneratedRows, "take", take)
    trained(tmp_path / "a", "data.path=stories:easy", "model.context_length=16", "steps=2")
    finding = measure_batch(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "targets")
    assert "must predict the id after it" in finding.message and words in finding.message
