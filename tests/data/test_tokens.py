"""Token files that are damaged, foreign or newer are refused with the file and the place."""

import json
import random
import struct
from collections import deque
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError
from pellucid.data import shard
from pellucid.data.manifest import NAME, PROGRESS
from pellucid.data.shard import HEAD, TAIL, Shard, ShardWriter
from pellucid.data.tokens import TokenFolder
from tests.data.small_corpora import copy_of_prepared, tokenizer_folder


def shard_file(path: Path, vocab_size: int = 300, ids: tuple[int, ...] = (5, 6, 7, 8, 0, 9, 0)) -> Path:
    with path.open("wb") as file:
        writer = ShardWriter(file, vocab_size)
        writer.add(np.array(ids, "<u2" if vocab_size <= 65_536 else "<u4"), np.array([5, 7]))
        writer.finish()
    return path


def change(path: Path, at: int, data: bytes) -> None:
    old = path.read_bytes()
    at = at % len(old)
    path.write_bytes(old[:at] + data + old[at + len(data) :])


@pytest.mark.parametrize(("vocab_size", "size"), [(300, 2), (65_536, 2), (65_537, 4), (2**32, 4)])
def test_a_shard_is_read_as_it_was_written(tmp_path: Path, vocab_size: int, size: int) -> None:
    shard = Shard(shard_file(tmp_path / "a.tokens", vocab_size))
    assert (shard.tokens, shard.documents, shard.item) == (7, 2, size)
    assert shard.ids.tolist() == [5, 6, 7, 8, 0, 9, 0] and shard.ends.tolist() == [5, 7]


def test_the_bytes_of_a_shard_are_as_its_description_says(tmp_path: Path) -> None:
    data = shard_file(tmp_path / "a.tokens").read_bytes()
    assert data[:24] == b"PELLTOKS" + struct.pack("<IIQ", 1, 2, 300)
    assert data[24:40] == struct.pack("<8H", 5, 6, 7, 8, 0, 9, 0, 0)
    assert data[40:] == struct.pack("<4Q", 5, 7, 7, 2) + b"PELLDONE"


@pytest.mark.parametrize(
    ("at", "data", "message"),
    [
        (0, b"GGUF", "byte 0"),
        (8, struct.pack("<I", 2), r"format 2 \(byte 8\)"),
        (12, struct.pack("<I", 4), "byte 12 .* 300 takes 4 bytes"),
        (16, struct.pack("<Q", 0), "byte 12"),
        (-TAIL.size, struct.pack("<Q", 2**60), "take .* bytes, and the file has 80"),
        (-16, struct.pack("<Q", 3), "7 tokens and 3 documents"),
        (-8, b"X", "byte 72"),
    ],
)
def test_a_damaged_head_or_tail_is_named(tmp_path: Path, at: int, data: bytes, message: str) -> None:
    path = shard_file(tmp_path / "a.tokens")
    change(path, at, data)
    with pytest.raises(FileError, match=message) as error:
        Shard(path)
    assert str(path) in str(error.value)


def test_a_shard_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = shard_file(tmp_path / "a.tokens")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match=r"truncated|is not a token file"):
            Shard(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FileError, match="damaged"):
        Shard(path)


def test_a_document_end_that_cannot_be_is_named(tmp_path: Path) -> None:
    path = shard_file(tmp_path / "a.tokens")
    change(path, 40, struct.pack("<Q", 9))
    with pytest.raises(FileError, match="byte 40"):
        _ = Shard(path).ends


def test_an_id_beyond_the_vocabulary_is_named_with_its_place(tmp_path: Path) -> None:
    folder = copy_of_prepared(tmp_path)
    file = folder / "train-00001.tokens"
    change(file, HEAD.size + 2 * 10, struct.pack("<H", 60_000))
    train = TokenFolder(folder)["train"]
    place = train.starts[1]
    message = (
        rf"train-00001.tokens is damaged: token 10 \(byte {HEAD.size + 20}\) is 60000, and ids go from 0 to"
    )
    for start, stop in ((place, place + 11), (place - 3, place + 20), (0, len(train))):
        with pytest.raises(FileError, match=message):
            train.read(start, stop)
    train.read(0, place + 10)
    with pytest.raises(FileError, match="its checksum is"):
        train.verify()


def test_any_stretch_is_read_across_shards(tmp_path: Path) -> None:
    train = TokenFolder(copy_of_prepared(tmp_path))["train"]
    whole = np.concatenate([shard.ids for shard in train.shards])
    draw = random.Random(0)
    for _ in range(200):
        start, stop = sorted(draw.choices(range(len(train) + 1), k=2))
        assert np.array_equal(train.read(start, stop), whole[start:stop])


def test_no_more_files_are_open_than_a_process_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAPPED", 2)
    monkeypatch.setattr(shard, "_mapped", deque())
    train = TokenFolder(copy_of_prepared(tmp_path))["train"]
    before = len(list(Path("/proc/self/fd").iterdir()))
    whole = np.concatenate([np.array(part.ids) for part in train.shards])
    for _ in range(2):
        assert np.array_equal(train.read(0, len(train)), whole)
        assert sum(len(train.document(i)) for i in range(train.documents)) == len(whole)
    assert len(train.shards) > 5 and len(list(Path("/proc/self/fd").iterdir())) <= before + 2


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4), (0, 10**9)])
def test_tokens_that_are_not_there_are_refused(tmp_path: Path, start: int, stop: int) -> None:
    train = TokenFolder(copy_of_prepared(tmp_path))["train"]
    with pytest.raises(ConfigError, match=f"tokens {start} to {stop}"):
        train.read(start, stop)


def test_documents_and_parts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    folder = TokenFolder(copy_of_prepared(tmp_path))
    with pytest.raises(ConfigError, match="no document 40"):
        folder["train"].document(40)
    with pytest.raises(ConfigError, match=r"'trian'. Did you mean 'train'"):
        folder["trian"]


def test_a_folder_that_is_unfinished_or_none_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=NAME):
        TokenFolder(tmp_path)
    (tmp_path / PROGRESS).write_text("{}")
    with pytest.raises(FileError, match="is not finished"):
        TokenFolder(tmp_path)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["format"], "other", "is not a token-file manifest"),
        (["version"], 2, "format 2"),
        (["parts"], [], "'parts' is missing"),
        (["parts"], {"train": []}, r"'parts' are \[\"train\"\]"),
        (["parts", "train"], {}, "the shards of 'train'"),
        (["parts", "train", 0, "file"], "../../etc/passwd", "is called '../../etc/passwd'"),
        (["parts", "train", 0, "tokens"], -1, "shard 0 of 'train' has tokens=-1"),
        (["parts", "train", 0, "tokens"], True, "tokens"),
        (["parts", "train", 0, "sha256"], "no", "sha256"),
        (["parts", "train", 0], {}, "file, documents"),
        (["totals", "train"], None, "the totals of 'train'"),
        (["totals", "train", "tokens"], 3, "'train' has 3 tokens, and its shards"),
        (["tokenizer", "vocab_size"], 0, "'vocab_size' is 0"),
        (["tokenizer", "end"], 5000, "'end' is 5000, beyond the vocabulary"),
    ],
)
def test_a_damaged_manifest_says_which_field(
    tmp_path: Path, keys: list[str | int], value: object, message: str
) -> None:
    folder = copy_of_prepared(tmp_path)
    data = json.loads((folder / NAME).read_text("utf-8"))
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (folder / NAME).write_text(json.dumps(data))
    with pytest.raises(FileError, match=message):
        TokenFolder(folder)


def test_another_tokenizer_in_its_folder_is_refused(tmp_path: Path) -> None:
    folder = copy_of_prepared(tmp_path)
    assert TokenFolder(folder).tokenizer.kind == "bpe"
    tokenizer_folder(folder / "tokenizer", kind="bytes")
    with pytest.raises(FileError, match="not the tokenizer"):
        TokenFolder(folder).verify()


def test_shards_that_were_exchanged_do_not_fit_the_manifest(tmp_path: Path) -> None:
    folder = copy_of_prepared(tmp_path)
    (folder / "train-00001.tokens").write_bytes((folder / "train-00000.tokens").read_bytes())
    with pytest.raises(FileError, match=r"train-00001\.tokens.*manifest"):
        _ = TokenFolder(folder)["train"]


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.torture)])
def test_no_damage_gives_anything_but_one_error_and_verify_finds_all_of_it(
    tmp_path: Path, count: int
) -> None:
    folder = copy_of_prepared(tmp_path, documents=12, shard_tokens=80)
    files, draw = [path for path in sorted(folder.iterdir()) if path.is_file()], random.Random(count)
    for _ in range(count):
        path = draw.choice(files)
        before = path.read_bytes()
        path.write_bytes(mutated(before, draw))
        complaint = read_all(folder)
        assert complaint is None or str(folder) in complaint
        # A changed number in the settings is no damage that can be known; in a shard every bit counts.
        assert complaint or path.suffix != ".tokens" or path.read_bytes() == before
        path.write_bytes(before)


def read_all(folder: Path) -> str | None:
    """Read and verify everything; the complaint, if there is one, and no other error."""
    try:
        opened = TokenFolder(folder)
        train = opened["train"]
        with suppress(FileError):  # a document may be unreadable, and verify must say so too
            for i in range(train.documents):
                assert train.document(i).max(initial=0) < train.vocab_size
        opened.verify()
    except FileError as error:
        return str(error)
    return None


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One of the things that happen to files: a byte, a stretch, an end."""
    at = draw.randrange(len(data))
    match draw.randrange(5):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + draw.randbytes(draw.randrange(1, 16)) + data[at:]
        case 3:
            size = draw.choice([1, 2, 4, 8])
            return data[:at] + draw.choice([b"\xff", b"\0", b"\x7f"]) * size + data[at + size :]
        case _:
            return draw.choice([b"", b"{}", b"[]", b"null", b"[" * 10_000, data + data, b'{"format": 1}'])
