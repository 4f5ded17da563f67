"""The full counts, in parts: each with its seed, time and result. What a part found is in its file.

make torture                        # every part, some hours on two cores
make torture PARTS="machines text"  # parts by the beginning of their names
"""

import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OUT = ROOT / "scratch" / "torture"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FULL = ("-n", "2", "--dist", "worksteal", "-m", "(torture or rotating) and not timed")
ORDINARY = ("-n", "2", "--dist", "worksteal", "-m", "not timed and not torture")
MACHINES = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
    "default": {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell"},
    "two-threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    "four-threads": {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"},
}
"""Instruction sets and numbers of threads that round otherwise."""


class Part(NamedTuple):
    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}  # noqa: RUF012


def list_parts() -> Iterator[Part]:
    """Yields the parts: the full counts folder by folder, the ordinary suite as on other machines, the sweeps
    of faults, of mutations that the date draws and of healthy models, the sanitizers, and the newest release
    of every package."""
    for folder in sorted(path.parent for path in (ROOT / "tests").glob("*/__init__.py")):
        if folder.name not in ("faults", "gpu"):
            yield Part(folder.name, (*PYTEST, *FULL, f"tests/{folder.name}"), {"PELLUCID_ROTATION": "all"})
    single = (
        "-n",
        "2",
        "-m",
        "(torture or rotating) and not timed",
        *map(str, sorted((ROOT / "tests").glob("test_*.py"))),
    )
    yield Part("files", (*PYTEST, *single), {"PELLUCID_ROTATION": "all"})
    yield Part("faults", (sys.executable, "-m", "tests.faults.table"))
    yield Part("drawn", (sys.executable, "-m", "tests.faults.drawn.table", "--today"))
    yield Part("drawn-tests", (*PYTEST, "-n", "2", "-m", "torture", "tests/faults/test_drawn.py"))
    yield Part("healthy", (*PYTEST, "-n", "2", "tests/faults/test_healthy.py"), {"PELLUCID_ROTATION": "all"})
    yield Part("sanitize", ("sh", "scripts/sanitize.sh"))
    for name, environment in MACHINES.items():
        yield Part(f"machines-{name}", (*PYTEST, *ORDINARY), environment)
    yield Part("newest", ("sh", "scripts/newest.sh"))


def run_part(part: Part, seed: int) -> tuple[bool, str]:
    """Runs a part under a seed; returns whether it held, and its last line."""
    given = ONE_THREAD | part.environment | {"PYTHONHASHSEED": str(seed)}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"{part.name}.log", "wb") as file:
        variables = " ".join(f"{key}={value}" for key, value in given.items())
        file.write(f"{variables} {shlex.join(part.command)}\n".encode())
        file.flush()
        done = subprocess.run(
            part.command,
            cwd=ROOT,
            env=os.environ | given | {"PATH": path},
            stdout=file,
            stderr=file,
            check=False,
        )
    lines = (OUT / f"{part.name}.log").read_text("utf-8", "replace").rstrip().splitlines()
    is_idle = part.command[: len(PYTEST)] == PYTEST and done.returncode == 5  # a folder without such tests
    return done.returncode == 0 or is_idle, lines[-1].strip("= ")


def main() -> int:
    wanted = tuple(sys.argv[1:])
    parts = [part for part in list_parts() if not wanted or part.name.startswith(wanted)]
    failed = []
    for part in parts:
        seed, began = random.SystemRandom().randrange(2**32), time.monotonic()
        is_right, last = run_part(part, seed)
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        verdict = "ok" if is_right else "FAILED"
        print(f"{verdict:7} {part.name:22} seed {seed:<10} {minutes:3}:{seconds:02}  {last}", flush=True)
        failed += [] if is_right else [part.name]
    for name in failed:
        print(f"{name}: {(OUT / f'{name}.log').relative_to(ROOT)}")
    print(f"{len(parts) - len(failed)} parts held, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
