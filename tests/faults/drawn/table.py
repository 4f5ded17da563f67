"""The drawn mutations: each in a process of its own, what it changes, and what finds it.

    python -m tests.faults.drawn.table                               # the kept list
    python -m tests.faults.drawn.table --first 51 --count 50 --workers 16 --output results.tsv
    python -m tests.faults.drawn.table --seed 20261119 --count 20    # new ones
    python -m tests.faults.drawn.table --today                       # twenty by the date, as `make torture`
    python -m tests.faults.drawn.table --print results.tsv           # the table of results that are there

A mutation that changes no printed figure has no effect. Of the others, one is caught at its name, elsewhere,
or missed. One that ends the process, or does not end, is caught elsewhere: everybody sees it.
"""

import argparse
import csv
import datetime
import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path

from tests.faults.drawn import kept
from tests.faults.drawn.areas import AREAS, ROOT
from tests.faults.drawn.draw import NEW_COUNT, draw_distinct
from tests.faults.drawn.mutation import Mutation

CAUGHT = ("at its name", "elsewhere", "missed")
OUTCOMES = ("no program", "no effect", *CAUGHT)
WALL = 600
"""Seconds after which a process that computes nothing is ended."""
CAUGHT_PERCENT, OWN_PERCENT = 99.0, 90.0
"""What is wanted of the mutations that change a printed figure; one that raises is seen by everybody."""


@dataclass(frozen=True)
class Result:
    number: int
    seed: int
    area: str
    outcome: str
    """One of `OUTCOMES`."""
    changed: int
    """How many figures."""
    effect: str
    """The first of them."""
    raised: str
    """What was raised where a figure was to be printed; most of such mutations are easily seen."""
    found: str
    cpu: float
    seconds: float
    mutation: str


def prepare_subjects(folder: Path) -> str:
    """Prepares what all processes of a call read, and returns the path of the compiled library."""
    command = [sys.executable, "-m", "tests.faults.drawn.run", "0", "--prepared", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the figures of the unchanged package could not be computed:\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def run_one(mutation: Mutation, listed: Path, prepared: Path, library: str) -> Result:
    """Runs a mutation in a process, and returns what became of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        report, errors = Path(work) / "report", Path(work) / "errors"
        command = [sys.executable, "-m", "tests.faults.drawn.run", str(mutation.number)]
        command += ["--list", str(listed), "--report", str(report), "--prepared", str(prepared)]
        environment = _environment() | {"PELLUCID_NATIVE": library, "TMPDIR": work}
        with errors.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
            )
            try:
                code = process.wait(WALL)
            except subprocess.TimeoutExpired:
                code = -signal.SIGXCPU
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        facts: dict[str, object] = {}
        for line in report.read_text().splitlines() if report.exists() else ():
            facts |= json.loads(line)
        if "outcome" not in facts:
            last = errors.read_text("utf-8", "replace").strip().splitlines()[-1:]
            facts |= _read_end(code, facts, "".join(last))
    given = {field.name: facts.get(field.name, "") for field in fields(Result)}
    given |= {"number": mutation.number, "seed": mutation.seed, "area": mutation.area}
    given |= {"changed": facts.get("changed", 0), "cpu": facts.get("cpu", 0.0)}
    return Result(**given | {"seconds": round(time.monotonic() - began, 1), "mutation": str(mutation)})  # type: ignore[arg-type]


def _read_end(code: int, facts: dict[str, object], error: str) -> dict[str, object]:
    """Returns the outcome of a process that did not report one."""
    if "stage" not in facts:
        raise SystemExit(f"a mutation could not be planted: {error}")
    if code == -signal.SIGXCPU:
        end = "does not end"
    else:
        end = f"dies of {signal.Signals(-code).name}" if code < 0 else f"exits with {code}: {error}"
    effect = facts.get("effect") or end
    return {"outcome": "elsewhere", "effect": effect, "raised": facts.get("raised") or end, "found": end}


def _environment() -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return os.environ | threads | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}


def run_all(mutations: Sequence[Mutation], workers: int, output: Path | None) -> list[Result]:
    """Runs mutations in parallel processes; each result is appended to the output as it ends."""
    found = list[Result]()
    with tempfile.TemporaryDirectory() as place:
        listed, prepared = Path(place) / "list.tsv", Path(place) / "prepared"
        kept.write([*mutations], listed)
        prepared.mkdir()
        library = prepare_subjects(prepared)
        pool = ThreadPoolExecutor(workers)
        try:
            waiting = [pool.submit(run_one, one, listed, prepared, library) for one in mutations]
            for done in as_completed(waiting):
                found.append(done.result())
                if output is not None:
                    append(found[-1], output)
                if sys.stderr.isatty():
                    end = "\n" if len(found) == len(mutations) else ""
                    print(
                        f"\r{len(found)} of {len(mutations)} mutations", end=end, file=sys.stderr, flush=True
                    )
        finally:
            pool.shutdown(cancel_futures=True)
    return sorted(found, key=lambda one: one.number)


# ---- files of results


def append(result: Result, path: Path) -> None:
    row = {name: " ".join(str(value).split()) for name, value in asdict(result).items()}
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[Result]:
    """Returns the results of a file, of each mutation the last one."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = dict[tuple[int, int], Result]()
    for row in rows:
        numbers = {"number": int(row["number"]), "seed": int(row["seed"]), "changed": int(row["changed"])}
        times = {"cpu": float(row["cpu"]), "seconds": float(row["seconds"])}
        result = Result(**row | numbers | times)  # type: ignore[arg-type]
        found[result.seed, result.number] = result
    return sorted(found.values(), key=lambda one: one.number)


# ---- the table


def print_table(results: Sequence[Result], gone: Sequence[Mutation] = ()) -> bool:
    """Prints each mutation that was not caught at its name, and the table; returns whether the shares are
    as wanted."""
    for one in gone:
        print(f"gone, and another one drawn: {one.number} {one.file}: {one.text}")
    for one in results:
        if one.outcome in ("elsewhere", "missed"):
            print(f"{one.outcome}: {one.number} {one.mutation}")
            print(f"    changes {one.changed}: {one.effect}")
            if one.found:
                print(f"    found by {one.found}")
    print(f"\n{'drawn mutations':<18}{'drawn':>8}" + "".join(f"{name:>14}" for name in OUTCOMES))
    for area in (*AREAS, "all"):
        own = [one for one in results if area in (one.area, "all")]
        counts = Counter(one.outcome for one in own)
        print(f"{area:<18}{len(own):>8}" + "".join(f"{counts[name]:>14}" for name in OUTCOMES))
    shown = [one for one in results if one.outcome in CAUGHT]
    silent = [one for one in shown if not one.raised]
    loud = [one for one in shown if one.raised]
    print(f"of {len(loud)} that raise, crash or do not end: {describe_shares(loud)}")
    print(f"of {len(silent)} that change a printed figure: {describe_shares(silent)}")
    return all(map(operator.ge, measure_shares(silent), (CAUGHT_PERCENT, OWN_PERCENT)))


def measure_shares(shown: Sequence[Result]) -> tuple[float, float]:
    """Returns how many percent are caught, and at their own name."""
    counts = Counter(one.outcome for one in shown)
    return _percent(len(shown) - counts["missed"], len(shown)), _percent(counts["at its name"], len(shown))


def describe_shares(shown: Sequence[Result]) -> str:
    caught, own = measure_shares(shown)
    return f"caught {caught:.1f} %, at their own name {own:.1f} %"


def _percent(some: int, of: int) -> float:
    return 100.0 * some / of if of else 100.0


def choose(asked: argparse.Namespace) -> tuple[list[Mutation], list[Mutation]]:
    """Returns the mutations that are asked for, and those of the kept list that are gone."""
    if asked.today:
        asked.seed = int(f"{datetime.date.today():%Y%m%d}")
    if asked.seed is None:
        mutations, gone = kept.locate_all(kept.read())
        last = None if asked.count is None else asked.first - 1 + asked.count
        return mutations[asked.first - 1 : last], gone
    count = asked.count or NEW_COUNT
    return list(islice(draw_distinct(asked.seed), asked.first - 1, asked.first - 1 + count)), []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, help="draw new ones with this seed")
    parser.add_argument("--today", action="store_true", help="draw new ones, whose seed is the date")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, help="a table of results, to which is appended")
    parser.add_argument("--print", type=Path, dest="printed")
    asked = parser.parse_args(arguments)
    if asked.printed is not None:
        return not print_table(read(asked.printed))
    mutations, gone = choose(asked)
    results = run_all(mutations, asked.workers, asked.output)
    is_enough = print_table(results, gone)
    return asked.seed is None and not is_enough  # of a few new ones the share is reported alone


if __name__ == "__main__":
    sys.exit(main())
