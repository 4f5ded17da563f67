"""The library is found, built once, kept, and said to be missing where it cannot be had."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.engine.cpu import library
from pellucid.engine.cpu.library import HERE, NoLibrary, load_library, load_set, name_file

ASK = "from pellucid.engine.cpu.library import load_set; print(load_set('portable')._name)"


@pytest.fixture
def unshipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources without a library, and an empty cache folder."""
    for source in library.SOURCES:
        shutil.copy(HERE / source, tmp_path / source)
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    load_set.cache_clear()
    yield tmp_path
    load_set.cache_clear()


@pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")
def test_it_is_built_once_and_then_found(unshipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles the portable form, some seconds."""
    first = load_set("portable")
    assert Path(first._name) == unshipped / "home" / "native" / name_file("portable")
    load_set.cache_clear()
    monkeypatch.setattr(library, "find_compiler", lambda: None)
    assert load_set("portable")._name == first._name
    assert [path.name for path in (unshipped / "home" / "native").iterdir()] == [name_file("portable")]


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


def test_two_processes_at_once_load_it(tmp_path: Path) -> None:
    env = os.environ | {"PELLUCID_HOME": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", ASK], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert said[0] == said[1] and said[0].strip().endswith(name_file("portable"))
