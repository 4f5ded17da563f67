"""A key comes from a file of its owner's or from the environment, and is shown nowhere."""

import os
from pathlib import Path

import pytest

from pellucid.base.errors import PellucidError
from pellucid.server.http.key_file import VARIABLE, find_key, read_key_file

KEY = "correct-horse-battery-staple!~"


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "key"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_file_has_the_key_as_its_only_line(file: Path, end: bytes) -> None:
    assert read_key_file(write(file, KEY.encode() + end)) == KEY


@pytest.mark.parametrize("key", ["k" * 16, "k" * 256, "".join(map(chr, range(33, 127)))])
def test_the_bounds_of_a_key_are_accepted(file: Path, key: str) -> None:
    assert read_key_file(write(file, key.encode(), 0o400)) == key


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"k" * 15,
        b"k" * 15 + b"\n",
        b"k" * 257,
        b"k" * 257 + b"\n",
        b"k" * 100_000,
        b"k" * 16 + b"\n\n",
        b"k" * 16 + b"\n" + b"k" * 16,
        b"k" * 16 + b" ",
        b" " + b"k" * 16,
        b"kkkk kkkk kkkk kkkk",
        b"k" * 16 + b"\t",
        b"k" * 16 + b"\x00",
        b"k" * 16 + b"\x7f",
        "schlüssel-schlüssel".encode(),
        b"\xff" * 20,
        b"\xef\xbb\xbf" + b"k" * 20,
    ],
)
def test_what_is_not_a_key_is_refused_and_not_shown(file: Path, data: bytes) -> None:
    with pytest.raises(PellucidError) as caught:
        read_key_file(write(file, data))
    assert caught.value.exit_code == 2 and "kkkk" not in str(caught.value) and "schl" not in str(caught.value)
    assert str(file) in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777, 0o620, 0o601, 0o610])
def test_a_file_that_others_can_read_or_change_is_refused(file: Path, mode: int) -> None:
    with pytest.raises(PellucidError, match="chmod 600") as caught:
        read_key_file(write(file, KEY.encode(), mode))
    assert caught.value.exit_code == 2 and KEY not in str(caught.value)


def test_a_file_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, KEY.encode())
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(PellucidError, match="another user"):
        read_key_file(file)


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none", tmp_path / "loop", Path("/dev/null")):
        with pytest.raises(PellucidError) as caught:
            read_key_file(path)
        assert caught.value.exit_code == 2


def test_a_link_to_a_key_file_is_followed(file: Path, tmp_path: Path) -> None:
    """So is a key that Kubernetes mounts."""
    write(file, KEY.encode())
    (tmp_path / "link").symlink_to(file)
    assert read_key_file(tmp_path / "link") == KEY


def test_the_environment_has_the_key_where_no_file_is_given(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_key(None) is None
    monkeypatch.setenv(VARIABLE, KEY)
    assert find_key(None) == KEY
    assert VARIABLE not in os.environ  # no process of ours inherits it
    monkeypatch.setenv(VARIABLE, "k" * 20)
    assert find_key(write(file, KEY.encode())) == KEY and VARIABLE not in os.environ


@pytest.mark.parametrize("given", ["", " ", "k" * 15, "k" * 257, "k" * 16 + "\n", "é" * 20])
def test_an_environment_variable_that_is_not_a_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """An empty one too: it is a forgotten value, not the wish to have no key."""
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(PellucidError, match=VARIABLE) as caught:
        find_key(None)
    assert "kkkk" not in str(caught.value) and "é" not in str(caught.value)
