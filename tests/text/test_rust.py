"""A panic of a Rust library is one error in our words, and Rust prints nothing of its own."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, PellucidError, TokenError
from pellucid.text.from_files import from_pretrained
from pellucid.text.rust import call_native
from tests.formats.tokenizers import bpe_file

CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
PANICS: dict[str, tuple[dict[str, Any], type[PellucidError]]] = {
    "when the file is read": ({"normalizer": CHARSMAP}, FileError),
    "when a text is encoded": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, TokenError),
}


@pytest.mark.parametrize("name", PANICS)
def test_a_panic_prints_nothing_and_is_one_short_error(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, error = PANICS[name]
    path = bpe_file(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(error, match=r"tokenizer\.json"):
        from_pretrained(tmp_path).encode("the cat")
    os.write(2, b"afterwards")
    assert capfd.readouterr().err == "afterwards"


def test_what_a_library_says_is_cut_to_a_line(tmp_path: Path) -> None:
    path = bpe_file(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "9" * 5000}))
    with pytest.raises(FileError) as error:
        from_pretrained(tmp_path)
    assert len(str(error.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupt_is_not_a_panic_and_leaves_stderr_as_it_was(
    stop: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(stop):
        call_native("a complaint", _raising(stop))
    os.write(2, b"afterwards")
    assert capfd.readouterr().err == "afterwards"


def _raising(error: type[BaseException]) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_a_file_that_asks_for_truncation_does_not_shorten_a_text(tmp_path: Path) -> None:
    path = bpe_file(tmp_path) / "tokenizer.json"
    short = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    lower = {"type": "Lowercase"}  # so that the library itself encodes
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": short, "normalizer": lower}))
    assert len(from_pretrained(tmp_path).encode("a longer text")) > 2
