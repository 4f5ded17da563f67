"""`make faults`: every planted fault, and what found it.

A fault is caught at its name, by its check; caught elsewhere, by another check or at another name; or
missed. The second table is the power of local replay: errors of one value by a multiple of the limit that a
check states. The third one is of the mutations that a generator drew (`drawn/`).

    python -m tests.faults.table [PATTERN] [--workers N]
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from pellucid.model import Model
from pellucid.verification.checks.check import DTYPES, Subject
from pellucid.verification.checks.engine.paths import judge_texts, run_fused
from pellucid.verification.foreign_values import RecordedValue
from tests.faults.drawn import table as drawn
from tests.faults.fault import FAULTS, FOUND, KINDS, Fault
from tests.faults.subjects import SUBJECTS
from tests.faults.test_faults import prepare_in
from tests.formats.gguf import random_models

OUTCOMES = ("at its name", "elsewhere", "missed")
MULTIPLES = (0.5, 1.0, 2.0, 4.0)


def classify(fault: Fault, folder: Path) -> tuple[str, str]:
    """Returns how a fault was found, and by what."""
    subject = SUBJECTS[fault.subject]
    with pytest.MonkeyPatch.context() as patch:
        fault.plant(patch)
        own = list(subject.findings(folder, fault.check))
        if any(fault.is_named_by(finding) for finding in own):
            return OUTCOMES[0], f"{own[0].name} at {own[0].at}"
        for finding in (*own, *subject.findings(folder, None)):
            if finding.verdict in FOUND:
                return OUTCOMES[1], f"{finding.name} at {finding.at}"
    return OUTCOMES[2], ""


def print_faults(pattern: str) -> int:
    """Prints for each fault what found it, and the table; returns how many were missed."""
    counts, began = Counter[tuple[str, str]](), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        prepared: dict[str, Path] = {}
        for number, fault in enumerate(FAULTS, start=1):
            if not fnmatchcase(fault.name, pattern):
                continue
            outcome, found = classify(fault, prepare_in(Path(place), fault.subject, prepared))
            counts[fault.kind, outcome] += 1
            print(f"{outcome:<12}{fault.name} ({fault.kind}, {fault.subject}): {found}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(FAULTS)}", end="", file=sys.stderr, flush=True)
    print(f"\n{'kind':<12}{'planted':>9}" + "".join(f"{outcome:>14}" for outcome in OUTCOMES))
    for kind in (*KINDS, "all"):
        row = [
            sum(n for (k, o), n in counts.items() if kind in (k, "all") and o == name) for name in OUTCOMES
        ]
        print(f"{kind:<12}{sum(row):>9}" + "".join(f"{number:>14}" for number in row))
    print(f"{time.monotonic() - began:.0f} s")
    return sum(n for (_, outcome), n in counts.items() if outcome == OUTCOMES[2])


def measure_power(dtype: torch.dtype) -> dict[float, tuple[int, int]]:
    """Returns, for errors of one value that are multiples of its stated limit, how many were found, of how
    many: each value of each family once."""
    found: dict[float, tuple[int, int]] = {}
    for shape in random_models.ARCHITECTURES.values():
        subject = Subject(Model(random_models.model(shape)))
        module = subject.module(dtype)
        with torch.no_grad():
            (texts,) = run_fused(subject, module, True).texts
        for healthy in judge_texts(subject, module, texts).values:
            for multiple in MULTIPLES:
                value, kind = texts.values[healthy.name]
                wrong = RecordedValue(value * (1 + multiple * healthy.limit), kind)
                report = judge_texts(
                    subject, module, texts._replace(values={**texts.values, healthy.name: wrong})
                )
                is_seen = any(
                    other.name == healthy.name and other.verdict.is_failure for other in report.values
                )
                hits, of = found.get(multiple, (0, 0))
                found[multiple] = hits + is_seen, of + 1
    return found


def print_power() -> None:
    print("\nan error of one value, as a multiple of the limit that its check states: found")
    print(f"{'':<12}" + "".join(f"{multiple:>14g}" for multiple in MULTIPLES))
    for dtype in DTYPES:
        found = measure_power(dtype)
        cells = "".join(f"{f'{hits} of {of}':>14}" for hits, of in found.values())
        print(f"{str(dtype).removeprefix('torch.'):<12}{cells}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", help="the planted faults of this name alone")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes of drawn mutations"
    )
    asked = parser.parse_args()
    logging.disable()
    torch.set_num_threads(1)
    missed = print_faults(asked.pattern or "*")
    if asked.pattern:
        return bool(missed)
    print_power()
    print("\nmutations that a generator drew")
    return drawn.main(["--workers", str(asked.workers)]) or bool(missed)


if __name__ == "__main__":
    sys.exit(main())
