"""No healthy model is ever called wrong."""

from pathlib import Path

import pytest

from pellucid.verification.checks.catalogue import CHECKS, verify
from tests.faults.healthy import HEALTHY, QUANTIZED
from tests.verification.checks.subjects import shorten

SLOW = ("compiled", "finite differences")
"""A minute of C++, and a check of gradients that the choice of weights does not change."""
SAMPLE = [*HEALTHY][::40]
"""Of these a tenth is verified each day, and of all others in `make faults`."""


@pytest.fixture(autouse=True)
def _without_slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pellucid.verification.checks.catalogue.CHECKS",
        tuple(check for check in CHECKS if check.name not in SLOW),
    )


def verify_healthy(name: str, folder: Path) -> None:
    weights, _ = QUANTIZED.get(name, (None, None))
    report = verify(HEALTHY[name](folder), weights=weights)
    assert report, "\n".join(f"{bug.name}: {bug.verdict} at {bug.at}: {bug.measured}" for bug in report.bugs)


@pytest.mark.rotating
@pytest.mark.parametrize("name", SAMPLE)
def test_a_healthy_model_is_not_called_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every check but the slow ones, on one model a day."""
    shorten(monkeypatch)
    verify_healthy(name, tmp_path)


@pytest.mark.torture
@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in SAMPLE])
def test_no_healthy_model_is_ever_called_wrong(name: str, tmp_path: Path) -> None:
    verify_healthy(name, tmp_path)


def test_there_are_at_least_three_hundred_healthy_models() -> None:
    assert len(HEALTHY) >= 300
