"""Bytes to text, strictly or with replacements that are counted."""

import codecs
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import FileError
from pellucid.text.corpus import Corpus
from pellucid.text.corpus.decode import Decoder

BYTES = st.lists(
    st.sampled_from(
        [b"a", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xf0\x9f", b"\x98\x80", b"\xff", b"\xed\xa0\x80"]
    )
    | st.just("\ufffd".encode())
    | st.binary(max_size=3)
).map(b"".join)


@pytest.mark.parametrize(
    "examples", [pytest.param(300, id="some"), pytest.param(3000, marks=pytest.mark.torture, id="many")]
)
def test_the_count_of_replaced_bytes_is_that_of_a_handler_called_for_each(examples: int) -> None:
    bad = 0

    def handler(error: UnicodeError) -> tuple[str, int]:
        nonlocal bad
        assert isinstance(error, UnicodeDecodeError)
        bad += error.end - error.start
        return "\ufffd", error.end

    codecs.register_error("pellucid-test-count", handler)

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None)
    @given(BYTES)
    def check(data: bytes) -> None:
        nonlocal bad
        bad = 0
        expected = data.decode("utf-8", "pellucid-test-count")
        decoder = Decoder("a.txt", replace=True)
        assert (decoder.text(data, 0), decoder.replaced) == (expected, bad)

    check()


def test_the_first_bad_byte_is_named_with_its_place_in_the_file() -> None:
    with pytest.raises(
        FileError,
        match=r"a\.txt.*byte 103.*0xe9",
    ):
        Decoder("a.txt").text(b"caf\xe9 au lait", 100)


@pytest.mark.parametrize("start", [b"\xff\xfe", b"\xfe\xff"])
def test_utf16_is_recognised_and_the_remedy_named(start: bytes) -> None:
    with pytest.raises(FileError, match=r"byte 0 is 0xf.*UTF-16.*iconv"):
        Decoder("a.txt").text(start + "hi".encode("utf-16-le"), 0)


def corpus(folder: Path, *lines: str, name: str = "a.jsonl", **settings: str) -> Corpus:
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return Corpus(folder / name, **settings)  # type: ignore[arg-type]


def test_a_record_gives_its_field_and_the_place_of_its_line(tmp_path: Path) -> None:
    one, two = json.dumps({"text": "first\nline", "id": 1}), json.dumps({"id": 2, "text": "zweïte 😀"})
    read = corpus(tmp_path, one, "", " \t", two, split="paragraph")
    assert [(d.text, d.offset) for d in read.documents()] == [("first\nline", 0), ("zweïte 😀", len(one) + 5)]
    assert read.report.empty == 0


def test_a_rule_makes_json_lines_of_any_file(tmp_path: Path) -> None:
    read = corpus(tmp_path, '{"body": "x"}', name="a.txt", split="jsonl", field="body")
    assert [d.text for d in read.documents()] == ["x"]


def test_a_field_of_white_space_is_an_empty_document(tmp_path: Path) -> None:
    read = corpus(tmp_path, '{"text": " \\n"}', '{"text": "x"}', '{"text": ""}')
    assert [d.text for d in read.documents()] == ["x"]
    assert read.report.empty == 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"text": ', r"line 2 is not JSON: Expecting value"),
        ("[" * 100_000, r"line 2 is not JSON: maximum recursion depth"),
        ("1" * 5000, r"line 2 is not JSON: Exceeds the limit"),
        ('["text"]', r'line 2 is not an object such as \{"text": "…"\}: it is a list\.'),
        ("7", r'line 2 is not an object such as \{"text": "…"\}: it is a number\.'),
        ("{}", r"line 2 has no field 'text'; it is empty\."),
        ('{"txt": "a", "id": 1}', r"line 2 has no field 'text'; it has 'txt', 'id'\. Did you mean 'txt'\?"),
        ('{"text": null}', r"line 2: the field 'text' is not text, but null\."),
        ('{"text": ["a"]}', r"line 2: the field 'text' is not text, but a list\."),
        ('{"text": true}', r"line 2: the field 'text' is not text, but true or false\."),
        (
            '{"text": "a\\ud83d"}',
            r"line 2: the field 'text' holds \\ud83d, half a character\.",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(line: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"a\.jsonl, " + complaint):
        list(corpus(tmp_path, '{"text": "good"}', line).documents())


def test_half_a_character_is_replaced_and_counted_when_asked(tmp_path: Path) -> None:
    read = corpus(tmp_path, '{"text": "a\\ud83d"}', '{"text": "\\ud83d\\ude00"}', on_bad_file="replace")
    assert [d.text for d in read.documents()] == ["a\ufffd\ufffd\ufffd", "😀"]
    assert read.report.replaced_bytes == 3


def test_a_bad_byte_in_a_line_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "x"}\n{"text": "\xff"}\n')
    with pytest.raises(FileError, match=r"a\.jsonl.*byte 24 is 0xff"):
        list(Corpus(file).documents())
    read = Corpus(file, on_bad_file="replace")
    assert [d.text for d in read.documents()] == ["x", "\ufffd"]
    assert read.report.replaced_bytes == 1
