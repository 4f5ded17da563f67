"""A mutation in a process of its own: the import of one module finds other text, or the C compiler does.

Nothing is written into the package: of Python no bytecode is kept, and C is compiled from a copy.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tests.faults.drawn.areas import ROOT
from tests.faults.drawn.mutation import Mutation, read_source

NATIVE = ROOT / "pellucid" / "engine/cpu"


class NotCompiled(Exception):
    """The mutated C is not a program; the message is the compiler's."""


def plant(mutation: Mutation, folder: Path) -> None:
    """Plants a mutation in this process, which must not have imported the package; C is compiled in the
    folder. Raises NotCompiled."""
    if any(name == "pellucid" or name.startswith("pellucid.") for name in sys.modules):
        raise RuntimeError("a mutation is planted before the package is imported.")
    changed = mutation.apply(read_source(mutation.file))
    if mutation.file.endswith(".py"):
        sys.meta_path.insert(0, MutatedModule(mutation.file, changed))
    else:
        os.environ["PELLUCID_NATIVE"] = str(build_native(folder, Path(mutation.file).name, changed))


class MutatedModule(importlib.abc.MetaPathFinder):
    """Finds one module of the package with another source."""

    def __init__(self, file: str, source: str) -> None:
        self.name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.path, self.source = str(ROOT / file), source

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        loader = MutatedLoader(name, self.path, self.source)
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class MutatedLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.changed = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.changed, self.path, "exec", dont_inherit=True)


def build_native(folder: Path, file: str = "", changed: str = "") -> Path:
    """Compiles a copy of the C sources, one of them changed, for the fastest instruction set of this machine,
    and returns the library. A process of its own asks the package, which this one has not imported."""
    sources, built = folder / "native", folder / "built"
    built.mkdir()
    shutil.copytree(
        NATIVE, sources, ignore=lambda _, names: [n for n in names if not n.endswith((".c", ".h"))]
    )
    if file:
        (sources / file).write_text(changed, "utf-8")
    command = [sys.executable, "-m", "tests.faults.drawn.planted", str(sources), str(built)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled(done.stderr.strip().splitlines()[-1])
    return Path(done.stdout.strip())


def _build(sources: Path, folder: Path) -> Path:
    from pellucid.engine.cpu import library

    library.HERE = sources
    compiler = library.find_compiler()
    if compiler is None:
        raise SystemExit("there is no C compiler")
    name = next(name for name in library.SETS if library._may_have(name))
    try:
        return library.build(name, compiler, folder)
    except library.NoLibrary as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    print(_build(*map(Path, sys.argv[1:])))
