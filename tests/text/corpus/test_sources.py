"""Names, folders and patterns to files."""

import os
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.text.corpus.sources import display_name, files, is_jsonl


def made(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def names(found: tuple[str, ...], folder: Path) -> list[str]:
    return [os.path.relpath(file, folder) for file in found]


def test_a_folder_gives_its_texts_in_the_order_of_their_names_however_deep(tmp_path: Path) -> None:
    made(tmp_path, "b.txt", "a.md", "z/a.jsonl.zst", "c/d/e.txt.gz", "c/a.md.xz", "x.py", "B.txt", "txt")
    made(tmp_path, ".hidden.txt", ".git/notes.txt")
    expected = ["B.txt", "a.md", "b.txt", "c/a.md.xz", "c/d/e.txt.gz", "z/a.jsonl.zst"]
    assert names(files([tmp_path]), tmp_path) == expected


def test_a_pipe_in_a_folder_is_not_text_and_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    os.mkfifo(tmp_path / "b.txt")
    assert files([tmp_path]) == (str(tmp_path / "a.txt"),)


def test_sources_keep_their_order_and_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    made(tmp_path, "b.txt", "a.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    given = [tmp_path / "b.txt", "-", tmp_path, str(tmp_path / "*.txt"), "-"]
    assert files(given) == (str(tmp_path / "b.txt"), "-", str(tmp_path / "a.txt"))


def test_a_file_called_by_its_name_may_have_any_ending_and_look_like_a_pattern(tmp_path: Path) -> None:
    made(tmp_path, "novel", "part[1].txt", "part1.txt")
    assert names(files([tmp_path / "novel"]), tmp_path) == ["novel"]
    assert names(files([tmp_path / "part[1].txt"]), tmp_path) == ["part[1].txt"]


def test_a_pattern_matches_files_only_and_two_stars_are_any_folders(tmp_path: Path) -> None:
    made(tmp_path, "a/1.log", "a/b/2.log", "3.log")
    (tmp_path / "folder.log").mkdir()
    assert names(files([f"{tmp_path}/**/*.log"]), tmp_path) == ["3.log", "a/1.log", "a/b/2.log"]


def test_a_source_that_matches_nothing_is_named(tmp_path: Path) -> None:
    made(tmp_path, "code/a.py")
    with pytest.raises(FileError, match=r"'/nowhere\.txt'"):
        files(["/nowhere.txt"])
    with pytest.raises(FileError, match="there is no file or folder"):
        files(["a*\0"])
    with pytest.raises(FileError, match=r"\*\.txt.*no file"):
        files([f"{tmp_path}/*.txt"])
    with pytest.raises(FileError, match=r"code.*\.txt \.md"):
        files([tmp_path / "code"])
    with pytest.raises(FileError, match="no text was named"):
        files([])


def test_a_folder_that_may_not_be_read_is_an_error_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "a.txt", "private/b.txt")

    def scandir(path: str, real=os.scandir):  # type: ignore[no-untyped-def]
        if path.endswith("private"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(FileError, match="private: Permission denied"):
        files([tmp_path])


def test_names_say_what_is_inside() -> None:
    assert is_jsonl("a.jsonl") and is_jsonl("a.jsonl.gz") and is_jsonl("a.jsonl.zst")
    assert not is_jsonl("jsonl.txt") and not is_jsonl("a.jsonl.txt") and not is_jsonl("jsonl")
    assert display_name("-") == "standard input" and display_name("a.txt") == "a.txt"


MADE_FOLDERS = {
    "run folder": ("recipe.toml", "log.jsonl", "data/tokens/notes.txt"),
    "model folder": ("config.json", "model.safetensors", "merges.txt", "README.md"),
}


@pytest.mark.parametrize("kind", MADE_FOLDERS)
def test_a_folder_made_by_pellucid_is_not_text(kind: str, tmp_path: Path) -> None:
    made(tmp_path, "my.txt", "config.json", *(f"runs/a/{name}" for name in MADE_FOLDERS[kind]))
    assert names(files([tmp_path]), tmp_path) == ["my.txt"]
    with pytest.raises(FileError, match=f"is a {kind}, not text"):
        files([tmp_path / "runs" / "a"])


def test_token_files_are_not_text(tmp_path: Path) -> None:
    made(tmp_path, "my.txt", "tokens/tokenizer/merges.txt", "mine/a.txt")
    (tmp_path / "tokens" / "progress.json").write_text('{\n "format": "pellucid-tokens",\n "version": 1}')
    (tmp_path / "mine" / "manifest.json").write_text('{"format": "of somebody else"}')
    assert names(files([tmp_path]), tmp_path) == ["my.txt", "mine/a.txt"]


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_not_a_text(device: str) -> None:
    with pytest.raises(FileError, match="device"):
        files([device])
