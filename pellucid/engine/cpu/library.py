"""The compiled library: shipped in a wheel, or built on first use by the machine's C compiler and kept.

One library for each instruction set; all of them give the same bits. PELLUCID_NATIVE names the one to use
("avx512", "avx2", "portable"), is the path of another, or "off".
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from pellucid.base.errors import PellucidError, UsageError, unknown

HERE = Path(__file__).parent
SOURCES = (
    *("step.c", "decoder.c", "pool.c", "attention.h", "cached.h", "model.h", "pool.h", "products.h"),
    "vector.h",
)
FLAGS = ("-std=gnu11", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-Wno-psabi")
SETS = {
    "avx512": ("-O3", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    "avx2": ("-O2", "-mavx2", "-mf16c"),  # more than -O2 takes twice as long to compile
    "portable": ("-O2",),
}
"""The compiler's flags of each instruction set, the fastest first."""
X86 = ("x86_64", "AMD64")
SECONDS = 300
"""How long the compiler may take."""

log = logging.getLogger(__name__)


class NoLibrary(PellucidError):
    """The library cannot be had on this machine; the message says why, and what would help."""


def load_library() -> ctypes.CDLL:
    """Returns the library for the fastest instruction set of this machine. Raises NoLibrary where there is
    none."""
    wanted = os.environ.get("PELLUCID_NATIVE", "")
    if wanted == "off":
        raise NoLibrary("PELLUCID_NATIVE=off: decoding runs in PyTorch.")
    if os.sep in wanted:
        return _open(Path(wanted))
    if wanted:
        if wanted not in SETS:
            raise UsageError(unknown("PELLUCID_NATIVE", wanted, [*SETS, "off"]))
        return load_set(wanted)
    for name in SETS if platform.machine() in X86 else ("portable",):
        if _may_have(name) and (library := load_set(name)).pellucid_is_supported():
            return library
    raise NoLibrary("this machine has none of the instruction sets of the compiled decoder.")


@cache
def _may_have(name: str) -> bool:
    """Returns whether the processor may have an instruction set, so that those it lacks are not built."""
    if name == "portable":
        return True
    with open("/proc/cpuinfo") if Path("/proc/cpuinfo").exists() else open(os.devnull) as file:
        flags = next((line.split() for line in file if line.startswith("flags")), None)
    return flags is None or {"avx512": "avx512_vnni", "avx2": "avx2"}[name] in flags


@cache
def load_set(name: str) -> ctypes.CDLL:
    """Returns the library of one instruction set."""
    return _open(_find_built(name))


def _open(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibrary(f"{path} cannot be loaded: {error}. Remove it, and it is built again.") from None
    library.pellucid_run.restype = ctypes.c_int
    library.pellucid_pack.restype = None
    library.pellucid_sizes.restype = ctypes.POINTER(ctypes.c_int32)
    return library


def _find_built(name: str) -> Path:
    """Returns the library of these sources: shipped with the package, built before, or built now."""
    # It imports NumPy, and a wheel is built without it.
    from pellucid.base.files import find_user_folder, partial_folder

    file, folder = name_file(name), find_user_folder("cache") / "native"
    path = folder / file
    for known in (HERE / file, path):
        if known.exists():
            return known
    compiler = find_compiler()
    if compiler is None:
        raise NoLibrary(
            "there is no C compiler (cc, gcc or clang), so decoding runs in PyTorch, several times slower; "
            "install one: apt-get install gcc."
        )
    log.warning("compiling the CPU decoder (%s), once …", name)
    folder.mkdir(parents=True, exist_ok=True)
    with partial_folder(path) as work:
        built = build(name, compiler, work)
        os.replace(built, path)  # two processes at once write the same bytes
    return path


def remove_built(library: ctypes.CDLL) -> bool:
    """Removes a library that was built on first use, so that it is built again; not one that was shipped."""
    from pellucid.base.files import find_user_folder

    path = Path(library._name)
    is_built = path.parent == find_user_folder("cache") / "native"
    if is_built:
        path.unlink(missing_ok=True)
    return is_built


def find_compiler() -> str | None:
    """Returns the path of the C compiler, $CC or one of the usual names; None where there is none."""
    names = (os.environ.get("CC", "cc"), "gcc", "clang")
    return next((found for name in names if (found := shutil.which(name))), None)


def name_file(name: str) -> str:
    """Returns the file of an instruction set's library, with a digest of everything that it is made of."""
    digest = hashlib.sha256(repr((FLAGS, SETS[name], platform.machine())).encode())
    for source in SOURCES:
        digest.update((HERE / source).read_bytes())
    return f"decoder-{name}-{digest.hexdigest()[:16]}.so"


def build(name: str, compiler: str, folder: Path, more: tuple[str, ...] = ()) -> Path:
    """Compiles the library of an instruction set into a folder, and returns its path."""
    objects = []
    for source in (source for source in SOURCES if source.endswith(".c")):
        of_step = SETS[name] if source == "step.c" else ()
        target = folder / f"{source}.o"
        flags = (*FLAGS, *more, *of_step, f"-DSET_{name.upper()}")
        _run([compiler, *flags, "-c", str(HERE / source), "-o", str(target)])
        objects.append(str(target))
    built = folder / f"decoder-{name}.so"
    _run([compiler, *more, "-shared", *objects, "-o", str(built), "-lm", "-lpthread"])
    return built


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibrary(f"the CPU decoder could not be compiled: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise NoLibrary(f"the CPU decoder could not be compiled by {command[0]}: {first}")
