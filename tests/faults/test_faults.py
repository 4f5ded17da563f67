"""Every planted fault is found by its check, at its name."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.verification.checks.catalogue import CHECKS
from tests.faults.fault import FAULTS, FOUND, KINDS, Fault, Patch
from tests.faults.subjects import SUBJECTS

for file in sorted(Path(__file__).parent.glob("in_*.py")):  # each registers its faults
    importlib.import_module(f"tests.faults.{file.stem}")


def prepare_in(place: Path, subject: str, prepared: dict[str, Path]) -> Path:
    """Returns the folder of a subject below `place`; its files are written at the first call."""
    if subject not in prepared:
        prepared[subject] = place / str(len(prepared))
        prepared[subject].mkdir()
        SUBJECTS[subject].prepare(prepared[subject])
    return prepared[subject]


@pytest.mark.rotating
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_by_its_check_at_its_name(
    fault: Fault, prepared: Callable[[str], Path], monkeypatch: Patch
) -> None:
    folder = prepared(fault.subject)
    fault.plant(monkeypatch)
    (finding,) = SUBJECTS[fault.subject].findings(folder, fault.check)
    assert finding.verdict in FOUND, f"missed: {finding.verdict} {finding.measured}"
    assert fault.is_named_by(finding), f"{finding.verdict} at {finding.at}\n{finding.message}"


def test_every_check_has_a_planted_fault() -> None:
    """Those of a GPU need one."""
    without = {check.name for check in CHECKS if check.device == "cuda"}
    assert {check.name for check in CHECKS} - {fault.check for fault in FAULTS} == without


def test_there_are_at_least_120_faults_of_every_kind() -> None:
    assert len(FAULTS) >= 120
    assert {fault.kind for fault in FAULTS} == set(KINDS)
