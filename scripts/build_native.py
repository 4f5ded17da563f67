"""Compiles the CPU decoder when the package is built or installed, so that nothing is compiled on first use.

Where there is no C compiler, or it fails, the package is built without it; `pellucid/engine/cpu/library.py`
then builds it on first use, or says what is missing.
"""

import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        sys.path.insert(0, self.root)
        library = load_module(Path(self.root) / "pellucid" / "engine/cpu" / "library.py")
        compiler = library.find_compiler()
        names = library.SETS if platform.machine() in library.X86 else ("portable",)
        for name in names if compiler else ():
            target = library.HERE / library.name_file(name)
            if not target.exists():
                for old in library.HERE.glob(f"decoder-{name}-*.so"):
                    old.unlink()
                try:
                    with tempfile.TemporaryDirectory() as work:
                        built = library.build(name, compiler, Path(work))
                        target.write_bytes(built.read_bytes())
                except library.NoLibrary as error:
                    print(f"pellucid is built without the compiled decoder: {error}", file=sys.stderr)
                    return
            build_data["artifacts"].append(os.fspath(target.relative_to(self.root)))
            build_data["pure_python"], build_data["infer_tag"] = False, True


def load_module(path: Path) -> Any:
    """Returns a module of the package by its file: its own imports do not need what the package does."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
