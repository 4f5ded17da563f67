"""The library is found, built once, kept, and said to be missing where it cannot be had."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.engine.cpu import library
from pellucid.engine.cpu.library import HERE, NoLibrary, load_library, load_set, name_file

ASK = """
import pathlib, sys
from pellucid.engine.cpu import library
library.HERE = pathlib.Path(sys.argv[1])
print(library.load_set("portable")._name)
"""


@pytest.fixture
def unshipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources without a library, an empty cache folder, and a compiler that does not optimize,
    which takes a third of the time."""
    for source in library.SOURCES:
        shutil.copy(HERE / source, tmp_path / source)
    if compiler := library.find_compiler():
        quick = tmp_path / "quick-cc"
        quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
        quick.chmod(0o755)
        monkeypatch.setenv("CC", str(quick))
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    load_set.cache_clear()
    yield tmp_path
    load_set.cache_clear()


@pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")
def test_two_processes_at_once_build_it_and_then_it_is_found(
    unshipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", ASK, unshipped], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate(timeout=120)[0].strip() for process in processes}
    monkeypatch.setattr(library, "find_compiler", lambda: None)
    native = unshipped / "home" / "native"
    assert said == {str(native / name_file("portable"))} == {load_set("portable")._name}
    assert [path.name for path in native.iterdir()] == [name_file("portable")]


def test_a_changed_source_is_another_library(unshipped: Path) -> None:
    before = name_file("portable")
    (unshipped / "pool.h").write_text("/* changed */")
    assert name_file("portable") != before


def test_without_a_compiler_the_message_says_what_to_install(
    unshipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find_compiler", lambda: None)
    with pytest.raises(NoLibrary, match="install"):
        load_library()


def test_a_compiler_that_fails_is_quoted(unshipped: Path) -> None:
    (unshipped / "step.c").write_text("#error broken on purpose\n")
    with pytest.raises(NoLibrary, match="broken on purpose"):
        load_set("portable")
    assert not list((unshipped / "home").rglob("*.so"))


def test_a_truncated_library_is_named(unshipped: Path) -> None:
    damaged = unshipped / "home" / "native" / name_file("portable")
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\x7fELF")
    with pytest.raises(NoLibrary, match="Remove it"):
        load_set("portable")


def test_an_unknown_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_NATIVE", "avx521")
    with pytest.raises(UsageError, match="avx512"):
        load_library()
