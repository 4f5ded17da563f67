"""Conversations in a file: three forms mean the same, and an error names its line."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.conversation_file import is_chat, read
from pellucid.data.loader import DataLoader
from pellucid.data.rows.records import Records

ASKED, ANSWER = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}
FORMS = [
    {"messages": [ASKED, ANSWER], "id": 7},
    {"prompt": "Who?", "completion": "I."},
    {"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "I."}]},
]


def written(path: Path, *lines: Any) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text, "utf-8")
    return str(path)


def test_the_three_forms_mean_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", FORMS[0], "", *FORMS[1:], "")
    assert is_chat(path)
    assert list(read(path)) == [(line, [ASKED, ANSWER]) for line in (1, 3, 4)]


def test_a_packed_file_and_one_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + json.dumps(FORMS[0]).encode()
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(data))
    assert is_chat(str(path)) and list(read(str(path))) == [(1, [ASKED, ANSWER])]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", json.dumps(FORMS[0])), ("a.jsonl", '{"text": "x"}'), ("a.jsonl", "no"), ("a.jsonl", "")],
)
def test_other_files_are_not_conversations(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert not is_chat(str(tmp_path / name)) and not is_chat(str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ([1], 'it has no "messages"'),
        ({"prompt": "x"}, 'it has no "messages"'),
        ({"prompt": "x", "completion": None}, "completion"),
        ({"messages": []}, "list"),
        ({"messages": {"role": "user"}}, "list"),
        ({"messages": [ASKED, "x"]}, 'message 1 .*"role"'),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}, ANSWER]}, "message 0"),
        ({"conversations": [{"from": "human", "text": "x"}]}, 'message 0 .*"from"'),
        ({"messages": [ASKED]}, "assistant"),
        ({"messages": [ANSWER]}, "first message"),
    ],
)
def test_what_is_not_a_conversation_is_an_error_with_file_and_line(
    line: Any, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "a.jsonl", FORMS[0], "", line)
    with pytest.raises(FileError, match=f"a.jsonl, line 3: .*{words}"):
        list(read(path))


# ---- as rows

PIECES = [(np.arange(n), np.where(np.arange(n) % 2, np.arange(n), IGNORE_INDEX)) for n in (3, 5, 40, 7, 2)]


def test_every_record_comes_once_in_an_epoch_and_in_another_order_in_the_next() -> None:
    rows = Records(PIECES, length=50, pad=99)
    epochs = [[int((rows.take(1, slice(0, 1)).ids != 99).sum()) for _ in PIECES] for _ in range(4)]
    assert all(sorted(epoch) == [2, 3, 5, 7, 40] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_what_fills_a_row_up_is_not_counted_and_a_batch_is_as_wide_as_it_must_be() -> None:
    batch = Records(PIECES[:2], length=50, pad=9).take(2, slice(0, 2))
    assert batch.ids.shape == (2, 32)
    assert Records(PIECES[2:3], length=40).take(1, slice(0, 1)).ids.shape == (1, 40)
    for ids, targets in zip(batch.ids, batch.targets, strict=True):
        size = 3 if ids[3] == 9 else 5
        assert (ids[size:] == 9).all() and (targets[size:] == IGNORE_INDEX).all()


def test_a_loader_goes_on_with_the_same_records_and_refuses_others() -> None:
    first = DataLoader(Records(PIECES, 50, seed=1), 2, prefetch=0)
    next(first)
    state, wanted = first.state_dict(), next(first)
    second = DataLoader(Records(PIECES, 50, seed=1), 2, prefetch=0)
    second.load_state_dict(state)
    np.testing.assert_array_equal(next(second).ids, wanted.ids)
    with pytest.raises(ConfigError, match="content"):
        DataLoader(Records(PIECES[1:], 50, seed=1), 2, prefetch=0).load_state_dict(state)
    with pytest.raises(ConfigError, match="0 records"):
        Records([], 50)
