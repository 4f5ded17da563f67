"""Rules that cut a file into documents, against the same rules said in the simplest way."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import ConfigError
from pellucid.text.corpus.split import RULES, rule, whole_lines


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def said_simply(data: bytes, is_border: Callable[[bytes], bool]) -> list[tuple[int, bytes]]:
    """Documents line by line, all in memory: what the stream must give."""
    documents: list[tuple[int, list[bytes]]] = []
    at, open_ = 0, False
    for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", data):
        if is_border(re.sub(rb"\r?\n?\Z", b"", line)):
            open_ = False
        elif open_:
            documents[-1][1].append(line)
        else:
            documents.append((at, [line]))
            open_ = True
        at += len(line)
    return [(place, re.sub(rb"\r?\n?\Z", b"", b"".join(lines), count=1)) for place, lines in documents]


BORDERS: dict[str, Callable[[bytes], bool]] = {
    "paragraph": lambda line: not line.strip(b" \t"),
    "separator=**": lambda line: line == b"**",
    "separator=U+001E": lambda line: line == b"\x1e",
}
TEXTS = st.lists(
    st.sampled_from(
        [b"a", b"bb", b" ", b"\t", b"\n", b"\n\n", b"\r\n", b"\r", b"**", b"*", b"\x1e", b"\xff", b"\xc3"]
    )
).map(b"".join)


@pytest.mark.parametrize(
    "examples", [pytest.param(300, id="some"), pytest.param(3000, marks=pytest.mark.torture, id="many")]
)
@pytest.mark.parametrize("name", BORDERS)
def test_a_stream_is_cut_as_the_whole_would_be_whatever_the_chunks(name: str, examples: int) -> None:
    @settings(max_examples=examples, derandomize=True, deadline=None, database=None)
    @given(TEXTS, st.sampled_from([1, 2, 3, 7, 64]))
    def check(data: bytes, size: int) -> None:
        assert list(rule(name)(cut(data, size), 0)) == said_simply(data, BORDERS[name])

    check()


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(TEXTS, st.sampled_from([1, 2, 3, 7, 64]))
def test_lines_are_what_lies_between_newlines(data: bytes, size: int) -> None:
    found = list(rule("line")(cut(data, size), 10))
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    assert [line for _, line in found] == [line.removesuffix(b"\r") for line in expected]
    assert all(data[at - 10 :].startswith(line) for at, line in found)


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(TEXTS, st.sampled_from([1, 2, 3, 7, 64]))
def test_blocks_of_whole_lines_lose_nothing(data: bytes, size: int) -> None:
    blocks = list(whole_lines(cut(data, size)))
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks) == (data if data.endswith(b"\n") or not data else data + b"\n")


def test_the_whole_file_is_kept_to_the_last_byte() -> None:
    assert list(rule("file")([b"a\r\n", b"\n", b"b\n"], 3)) == [(3, b"a\r\n\nb\n")]
    assert list(rule("file")([], 0)) == []


def test_line_ends_inside_a_document_are_kept_as_they_are() -> None:
    data = b"one\r\ntwo\nthree\rfour\r\n \t\r\n  five\r\n\r\n\n"
    assert list(rule("paragraph")([data], 0)) == [(0, b"one\r\ntwo\nthree\rfour"), (25, b"  five")]


def test_nothing_between_two_separators_is_not_a_document_and_a_blank_line_is_one() -> None:
    assert list(rule("separator=--")([b"--\n--\na\n--\n\n--"], 0)) == [(6, b"a"), (11, b"")]


def test_a_separator_is_a_whole_line_and_no_pattern() -> None:
    assert [text for _, text in rule("separator=a.c")([b"x\nabc\na.cd\na.c\ny"], 0)] == [
        b"x\nabc\na.cd",
        b"y",
    ]
    assert [text for _, text in rule("separator=é=")(["x\né=\ny".encode()], 0)] == [b"x", b"y"]
    assert [text for _, text in rule("separator=U+2029")(["x\n\u2029\r\ny".encode()], 0)] == [b"x", b"y"]


def test_a_rule_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"'paragraf'.*'paragraph'"):
        rule("paragraf")
    for name in ("separator", "separator="):
        with pytest.raises(ConfigError, match=r"separator=\*\*\*"):
            rule(name)
    for text in ("a\nb", "a\r", "\udcff", "U+D800", "U+110000", "U+FFFFFF", "U+000A", "U+000D"):
        with pytest.raises(ConfigError, match=re.escape(f"separator {text!r}")):
            rule(f"separator={text}")


def test_every_rule_of_the_table_gives_nothing_for_nothing() -> None:
    for name in RULES:
        assert list(rule(name)([], 0)) == []
