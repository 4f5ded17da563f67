"""TOML as untrusted input: whatever a file holds is tables, or one error that names the file and the key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import ConfigError, FileError, PellucidError, show
from pellucid.base.toml import parse_toml
from pellucid.config import ModelConfig
from pellucid.formats.resolve import ModelReference
from pellucid.learning.lessons.page import parse_page
from pellucid.parts.optimizers import AdamW
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.name_table import parse_rules

DIGITS = "1" * 5000


def read_file(text: str, folder: Path) -> Any:
    (folder / "recipe.toml").write_text(text)
    return read_table(str(folder / "recipe.toml"))


def read_run(text: str, folder: Path) -> Any:
    (folder / "recipe.toml").write_text(text)
    return RunFolder(folder).read_recipe()


READERS: list[Callable[[str, Path], Any]] = [
    read_file,
    read_run,
    lambda text, _: ModelReference("a.toml", toml=text).config(),
    lambda text, _: ModelConfig.from_toml(text),
    lambda text, _: parse_rules("a.toml", text),
    lambda text, folder: parse_page(folder / "a.md", f"+++\n{text}\n+++\n## Intuition\n"),
]


@pytest.mark.parametrize(
    "value", [DIGITS, "0x" + "f" * 5000, f"-{DIGITS}", str(2**63), f'"{DIGITS}"\nb = {DIGITS}']
)
@pytest.mark.parametrize("read", READERS)
def test_an_integer_of_any_length_is_refused_by_its_key(
    tmp_path: Path, read: Callable[[str, Path], Any], value: str
) -> None:
    key = "b" if value.startswith('"') else "a"
    with pytest.raises(PellucidError, match=rf"part\.{key} is an integer of more than 64 bits"):
        read(f"[part]\na = {value}", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "a = ",
        "a = " + "[" * 5000,
        "a = 1\na = 2",
        "a = 2024-13-45",
        "\0",
        DIGITS,
        f"a = {DIGITS}.",
        f"a = {DIGITS}Z",
    ],
)
@pytest.mark.parametrize("read", READERS)
def test_what_is_not_toml_is_one_error(tmp_path: Path, read: Callable[[str, Path], Any], text: str) -> None:
    with pytest.raises(PellucidError, match="is not TOML: "):
        read(text, tmp_path)


def test_deep_nesting_is_refused_before_anything_walks_through_it() -> None:
    with pytest.raises(FileError, match="nested"):
        parse_toml("a = " + "[" * 200 + "]" * 200, "a.toml")


def test_the_place_of_an_integer_in_a_list_is_named() -> None:
    with pytest.raises(FileError, match=r"a\.toml: weights\.w\[1\]\[0\] is an integer"):
        parse_toml(f"[weights]\nw = [[1], [{DIGITS}]]", "a.toml")


def test_numbers_of_64_bits_and_long_floats_are_read() -> None:
    text = f"a = {2**63 - 1}\nb = -{2**63}\nc = 0.{DIGITS}\nd = '{DIGITS}'"
    assert parse_toml(text, "a.toml")["a"] == 2**63 - 1


def test_an_override_of_any_length_is_refused_by_its_key_and_a_text_stays_a_text() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lr is an integer of more than 64 bits"):
        override({}, [f"optimizer.lr={DIGITS}"])
    assert override({}, [f"out={DIGITS}"])["out"] == DIGITS


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2024-05-01", "2024-05-01 (a date)"),
        ("07:32:00", "07:32:00 (a time)"),
        ("2024-05-01 07:32:00", "2024-05-01T07:32:00 (a date and time)"),
        ("[1979-05-27]", "[1979-05-27 (a date)]"),
        ("nan", "nan"),
    ],
)
def test_a_value_is_refused_as_it_was_written(written: str, shown: str) -> None:
    value = parse_toml(f"a = {written}", "a.toml")["a"]
    assert show(value) == shown
    with pytest.raises(ConfigError, match="must be") as error:
        AdamW.read({"kind": "adamw", "lr": value})
    assert "datetime" not in str(error.value)


def test_no_reader_calls_the_library_itself() -> None:
    """Apart from what comes with the package, which is what it is."""
    import pellucid

    package = Path(pellucid.__file__).parent
    files = [path for path in package.rglob("*.py") if "tomllib.loads" in path.read_text("utf-8")]
    shipped = {f"training/{name}.py" for name in ("recipe/sections", "recipe/overrides", "saving/run_folder")}
    allowed = {"base/toml.py", "config/__init__.py", *shipped}
    assert {str(path.relative_to(package)) for path in files} == allowed
