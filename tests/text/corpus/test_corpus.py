"""The whole way from files to documents: order, parts, copies, counts, memory and hostile bytes."""

import gzip
import io
import lzma
import random
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import ConfigError, FileError
from pellucid.text.corpus import PARTS, Corpus, Document

MIXED = "eins\n\nzwei 😀\r\nzwoä\n\n\nдрей\n\n漢字\n\nnaïve café\n"


def write(folder: Path, **files: str | bytes) -> Path:
    for name, text in files.items():
        data = text.encode() if isinstance(text, str) else text
        (folder / f"{name}.txt").write_bytes(data)
    return folder


def texts(documents: Iterator[Document]) -> list[str]:
    return [document.text for document in documents]


@pytest.mark.parametrize("split", ["file", "line", "paragraph", "separator=漢字"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_characters_of_many_bytes_may_lie_across_chunks(split: str, chunk: int, tmp_path: Path) -> None:
    write(tmp_path, a="\ufeff" + MIXED, b=MIXED.replace("\n", "\r\n"))
    assert list(Corpus(tmp_path, split=split, chunk=chunk).documents()) == list(
        Corpus(tmp_path, split=split).documents()
    )


def test_a_document_says_where_it_begins(tmp_path: Path) -> None:
    write(tmp_path, a="\ufeff" + MIXED, b="x\n\nдрей")
    data = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    documents = list(Corpus(tmp_path, split="paragraph").documents())
    assert texts(iter(documents)) == ["eins", "zwei 😀\r\nzwoä", "дрей", "漢字", "naïve café", "x"]
    for document in documents:
        assert data[Path(document.file).name][document.offset :].startswith(document.text.encode())


def test_packed_and_plain_files_give_the_same_documents(tmp_path: Path) -> None:
    plain = write(tmp_path, a=MIXED) / "a.txt"
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(MIXED.encode()))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(MIXED.encode()))
    expected = [d._replace(file="") for d in Corpus(plain, split="paragraph").documents()]
    for name in ("b.txt.gz", "c.txt.xz"):
        read = Corpus(tmp_path / name, split="paragraph").documents()
        assert [d._replace(file="") for d in read] == expected


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\ntwo")))
    corpus = Corpus("-", split="paragraph")
    assert [tuple(d) for d in corpus.documents()] == [("one", "-", 0, "train"), ("two", "-", 5, "train")]
    with pytest.raises(FileError, match="standard input: 0 bytes"):
        list(corpus.documents())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(FileError, match=r"standard input.*byte 0 is 0xff"):
        list(corpus.documents())


def test_a_pass_can_be_repeated_and_gives_the_same(tmp_path: Path) -> None:
    corpus = Corpus(write(tmp_path, b=MIXED, a="x\n\ny"), split="paragraph", validation=0.3, seed=4)
    first, report = list(corpus.documents()), corpus.report
    assert list(corpus.documents()) == first and corpus.report == report


def test_the_report_counts_everything(tmp_path: Path) -> None:
    write(tmp_path, a="\ufeffeins\n\n€\n", b="", c=b"eins\n\n \x0b\n\nb\xff\xffd\n", d="eins")
    corpus = Corpus(tmp_path, split="paragraph", on_bad_file="replace")
    assert texts(corpus.documents()) == ["eins", "€", "b\ufffd\ufffdd"]
    report = corpus.report
    assert (report.files, report.empty_files, report.byte_order_marks) == (4, 1, 1)
    assert report.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert (report.documents, report.empty, report.duplicates, report.replaced_bytes) == (3, 1, 2, 2)
    assert report.characters == 4 + 1 + 4
    assert report.parts["train"].bytes == 4 + 3 + 8
    assert report.parts["validation"].documents == 0


def test_the_parts_are_disjoint_complete_and_counted(tmp_path: Path) -> None:
    write(tmp_path, a="\n".join(f"line {i}" for i in range(2000)))
    corpus = Corpus(tmp_path, split="line", validation=0.2)
    parts = {part: texts(corpus.documents(part)) for part in PARTS}
    assert corpus.report.parts["train"].documents == len(parts["train"])
    assert corpus.report.parts["validation"].documents == len(parts["validation"])
    assert corpus.report.parts["train"].characters == sum(map(len, parts["train"]))
    assert sorted(parts["train"] + parts["validation"]) == sorted(f"line {i}" for i in range(2000))
    assert abs(len(parts["validation"]) - 400) < 4 * (2000 * 0.2 * 0.8) ** 0.5


def test_a_document_lands_in_the_same_part_whatever_its_file_order_and_form(tmp_path: Path) -> None:
    lines = [f"Zeile {i} ✓" for i in range(300)]
    write(tmp_path, a="\n".join(lines), b="\r\n\r\n".join(reversed(lines)))
    records = "\n".join(f'{{"text": "{line}"}}' for line in lines).replace("✓", "\\u2713")
    (tmp_path / "c.jsonl").write_text(records)
    found = []
    for name, split in (("a.txt", "line"), ("b.txt", "paragraph"), ("c.jsonl", "file")):
        read = Corpus(tmp_path / name, split=split, validation=0.3, seed=9)
        found.append({d.text: d.part for d in read.documents()})
    assert found[0] == found[1] == found[2]
    assert list(found[0]) == lines == list(reversed(found[1]))
    assert set(found[0].values()) == set(PARTS)


def test_a_larger_share_keeps_what_a_smaller_one_held_out_and_another_seed_does_not(tmp_path: Path) -> None:
    write(tmp_path, a="\n".join(map(str, range(1000))))

    def held_out(share: float, seed: int = 0) -> set[str]:
        return set(texts(Corpus(tmp_path, split="line", validation=share, seed=seed).documents("validation")))

    assert held_out(0.0) == set()
    assert held_out(0.1) < held_out(0.2) < held_out(0.9)
    assert len(held_out(0.2) & held_out(0.2, seed=1)) < 100


def test_the_rule_of_the_parts_never_changes(tmp_path: Path) -> None:
    """Golden: what was held out once is held out in every later version."""
    write(tmp_path, a="\n".join(map(str, range(40))))
    held_out = texts(Corpus(tmp_path, split="line", validation=0.1, seed=1).documents("validation"))
    assert held_out == ["24", "30"]


def test_copies_are_left_out_once_and_kept_when_asked(tmp_path: Path) -> None:
    write(tmp_path, a="x\n\ny\n\nx", b="y\n\nx \n\nz")
    corpus = Corpus(tmp_path, split="paragraph")
    assert texts(corpus.documents()) == ["x", "y", "x ", "z"]
    assert corpus.report.duplicates == 2
    corpus = Corpus(tmp_path, split="paragraph", unique=False)
    assert texts(corpus.documents()) == ["x", "y", "x", "y", "x ", "z"]
    assert corpus.report.duplicates == 0


def test_the_first_bad_byte_is_reported_at_its_place_after_unpacking(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + b"good line\n" * 5000 + b"bad \xe9 line\n"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    for split in ("file", "line", "paragraph", "separator=*"):
        for chunk in (1000, 1 << 20):
            with pytest.raises(FileError, match=rf"a\.txt\.gz.*byte {data.index(0xE9)} is 0xe9"):
                list(Corpus(tmp_path / "a.txt.gz", split=split, chunk=chunk).documents())


@pytest.mark.parametrize("text", ["", " \n\r\n\t", "\ufeff"])
def test_a_corpus_without_any_text_is_one_error(text: str, tmp_path: Path) -> None:
    write(tmp_path, a=text)
    size = len(text.encode())
    with pytest.raises(FileError, match=rf"a\.txt: {size} bytes"):
        list(Corpus(tmp_path).documents())
    write(tmp_path, b=text, c=text, d=text)
    with pytest.raises(FileError, match=rf"c\.txt, …: {4 * size} bytes in 4 files"):
        list(Corpus(tmp_path, split="line").documents())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"split": "sentence"}, r"split.*sentence"),
        ({"on_bad_file": "ignore"}, r"on_bad_file.*stop, skip, replace.*ignore"),
        ({"validation": 1.0}, r"validation=1\.0"),
        ({"validation": float("nan")}, "validation=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"chunk": 0}, "chunk=0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_read(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Corpus("/nowhere", **settings)


def test_an_unknown_part_is_refused_at_once(tmp_path: Path) -> None:
    corpus = Corpus(write(tmp_path, a="x"))
    with pytest.raises(ConfigError, match=r"'validation'"):
        corpus.documents("valid")


def peak(corpus: Corpus) -> int:
    tracemalloc.start()
    for _ in corpus.documents():
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("split", ["file", "line", "paragraph", "separator=***"])
def test_one_large_document_takes_a_few_times_its_size(split: str, tmp_path: Path) -> None:
    size = 8_000_000
    write(
        tmp_path,
        a="so weit, so gut " * (size // 16) if split == "line" else "so weit, so gut\n" * (size // 16),
    )
    assert peak(Corpus(tmp_path, split=split, chunk=1 << 16)) < (
        3.3 * size if split != "line" else size * 4.3
    )


@pytest.mark.parametrize("split", ["line", "paragraph", "separator=***"])
def test_many_documents_take_no_more_memory_than_few(split: str, tmp_path: Path) -> None:
    border = {"line": "\n", "paragraph": "\n\n"}.get(split, "\n***\n")
    write(tmp_path, few=border.join(map(str, range(2000))), many=border.join(map(str, range(20_000))))
    few, many = (
        peak(Corpus(tmp_path / f"{name}.txt", split=split, chunk=1 << 13, unique=False))
        for name in ("few", "many")
    )
    assert many < few + 20_000


def test_leaving_out_copies_takes_the_memory_that_is_stated(tmp_path: Path) -> None:
    write(tmp_path, a="\n".join(map(str, range(20_000))))
    without, with_ = (
        peak(Corpus(tmp_path, split="line", chunk=1 << 13, unique=unique)) for unique in (False, True)
    )
    assert (with_ - without) / 20_000 < 220


@pytest.mark.parametrize("split", ["file", "line", "paragraph", "separator=***"])
def test_one_large_document_in_small_chunks_is_not_copied_again_for_each(split: str, tmp_path: Path) -> None:
    """A reader that copied what it holds with every chunk would copy 30 GB here, and hang."""
    write(tmp_path, a="x" * 2_000_000)
    assert len(next(Corpus(tmp_path, split=split, chunk=64).documents()).text) == 2_000_000


STARTS = {
    "txt": [b"", MIXED.encode(), "\ufeffa\nb\x1e".encode()],
    "jsonl": [b'{"text": "a"}\n{"text": "b\\ud83d", "c": [1.5, null, {}]}\n' * 2],
    "txt.gz": [gzip.compress(MIXED.encode()), gzip.compress(bytes(300))],
    "txt.xz": [lzma.compress(MIXED.encode()), lzma.compress(bytes(300))],
    "jsonl.zst": [b"(\xb5/\xfd"],
}


@pytest.mark.parametrize(
    "files", [pytest.param(500, id="some"), pytest.param(5000, marks=pytest.mark.torture, id="many")]
)
@pytest.mark.parametrize("ending", STARTS)
def test_damaged_and_random_bytes_are_documents_or_a_file_error(
    ending: str, files: int, tmp_path: Path
) -> None:
    file, draw = tmp_path / f"a.{ending}", random.Random(ending)
    for _ in range(files):
        data = bytearray(draw.choice(STARTS[ending]))
        for _ in range(draw.randrange(4)):
            place = draw.randrange(len(data) + 1)
            data[place : place + draw.randrange(3)] = draw.randbytes(draw.randrange(4))
        file.write_bytes(data)
        split = draw.choice(["file", "line", "paragraph", "separator=a", "jsonl"])
        choice = draw.choice(["stop", "skip", "replace"])
        corpus = Corpus(file, split=split, on_bad_file=choice, validation=0.5, chunk=draw.randrange(1, 99))
        try:
            documents = list(corpus.documents())
        except FileError:
            continue
        assert documents and all(d.text.strip() and d.text.encode() for d in documents)
