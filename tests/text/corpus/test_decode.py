"""Bytes to text, strictly or with replacements that are counted."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import FileError
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
