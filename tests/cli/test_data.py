"""`pellucid data`: prepare says what it made, show what is there, and Ctrl-C how to go on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pellucid.base.errors import ConfigError, FileError, UsageError
from pellucid.cli.data import _lines, app
from pellucid.data.prepare import EncodingProgress
from tests.data.small_corpora import copy_of_prepared, text_file, tokenizer_folder


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_prepare_says_what_it_made_and_show_what_is_there(tmp_path: Path) -> None:
    text = text_file(tmp_path / "text.txt", 50)
    text.write_text(text.read_text("utf-8") + "\n" + text.read_text("utf-8").split("\n")[0], "utf-8")
    out, tokenizer = tmp_path / "out", tokenizer_folder(tmp_path / "tokenizer")
    words = (
        text,
        "--tokenizer",
        tokenizer,
        "-o",
        out,
        "--split",
        "line",
        "--validation",
        0.3,
        "--workers",
        1,
    )
    made = run("prepare", *words)
    assert (
        f"{out}: train, " in made and f"{out}: validation, " in made and "bytes per token, in 1 shard" in made
    )
    assert "omitted: 1 duplicate, 0 empty" in made
    shown = run("show", out, "--samples", 2, "--verify")
    for line in (
        "tokenizer        bpe, 300 tokens, sha256 ",
        "end of document  0 (<end>)",
        "split by         line",
        "train: ",
        "validation: ",
        "tokens per document   0 %: ",
        "most frequent         ",
        "document 0",
        "every checksum, id and document end",
    ):
        assert line in shown
    assert shown.count(" tokens: ") == 4 and "the " in shown


def test_copies_are_kept_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\nthe cat\n")
    words = ("--split", "line", "--tokenizer", tokenizer_folder(tmp_path / "tokenizer"), "--workers", 1)
    assert "train, 1 document," in run("prepare", tmp_path / "a.txt", *words, "-o", tmp_path / "once")
    kept = run("prepare", tmp_path / "a.txt", *words, "-o", tmp_path / "twice", "--keep-duplicates")
    assert "train, 2 documents," in kept and "omitted" not in kept


def test_json_lines_are_read_by_their_field(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "the cat"}\n{"body": "sat on a mat"}\n')
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    made = run(
        "prepare", tmp_path / "a.jsonl", "--field", "body", "--tokenizer", tokenizer, "-o", tmp_path / "o"
    )
    assert "train, 2 documents" in made


def test_show_finds_damage(tmp_path: Path) -> None:
    folder = copy_of_prepared(tmp_path)
    shard = folder / "train-00000.tokens"
    shard.write_bytes(shard.read_bytes().replace(b"PELLDONE", b"PELLDONT"))
    with pytest.raises(FileError, match="truncated or damaged"):
        run("show", folder)


def test_where_no_person_looks_on_progress_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    report = _lines(every=0)
    report(EncodingProgress(5_000_000, 20_000_000, 10, 1_250_000, 10e6))
    report(EncodingProgress(5_000_000, None, 10, 1_250_000, 10e6))
    assert capsys.readouterr().err.splitlines() == [
        "5 of 20 MB, 1,250,000 tokens, 10.0 MB/s, 0:00:02 left",
        "5 MB, 1,250,000 tokens, 10.0 MB/s",
    ]


def start_prepare(folder: Path, *sources: object) -> "subprocess.Popen[str]":
    """Begins to prepare texts, in a process group of its own as a terminal gives to each command."""
    tokenizer = folder / "tokenizer"
    if not tokenizer.exists():
        tokenizer_folder(tokenizer)
    words = ["data", "prepare", *sources, "--tokenizer", tokenizer, "-o", folder / "out", "--workers", 2]
    command = [sys.executable, "-m", "pellucid.cli", *map(str, words)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGHUP, False)])
def test_a_signal_says_how_to_go_on_also_while_the_workers_start(
    tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    # Standard input that stays open: the command waits in the middle of its work.
    process = start_prepare(tmp_path, text_file(tmp_path / "text.txt", 20), "-")
    while not (tmp_path / "out" / "tokenizer" / "tokenizer_config.json").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    (os.killpg if group else os.kill)(process.pid, number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert said.count("\n") == 1 and "Interrupted" in said and str(tmp_path / "out") in said


@pytest.mark.torture
@pytest.mark.parametrize("group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_stop_prints_a_traceback_and_all_can_be_continued(
    tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    text = text_file(tmp_path / "text.txt", 20_000)
    draw = random.Random(number + group)
    for _ in range(30):
        process = start_prepare(tmp_path, text, "--split", "line")
        time.sleep(draw.uniform(0.2, 1.5))
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=20)
        assert "Traceback" not in said and "ignored" not in said
        assert process.returncode in (0, -number, 128 + number)
    process = start_prepare(tmp_path, text, "--split", "line")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "every checksum" in run("show", tmp_path / "out", "--verify")


def test_the_command_is_there_before_anything_heavy_is_imported() -> None:
    heavy = {"numpy", "torch", "tiktoken", "tokenizers", "rich.progress"}
    script = f"import sys, pellucid.cli.data; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_stories_are_shown_with_their_limit() -> None:
    shown = run("show", "stories:easy", "--samples", 2)
    assert "22.0893 nats per story" in shown
    assert shown.count("ln P = ") == 2
    with pytest.raises(ConfigError, match=r"tiny, easy, full.*'hard'"):
        run("show", "stories:hard")


def preparation(text: Path, folder: Path) -> tuple[object, ...]:
    """The words of a command that prepares a text, up to the output."""
    return text, "--tokenizer", tokenizer_folder(folder / "tokenizer"), "--workers", 1, "-o"


def test_bytes_that_are_not_text_are_replaced_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"the cat" + b"\xff sat")
    words = preparation(tmp_path / "text.txt", tmp_path)
    with pytest.raises(FileError, match=r"text\.txt.*byte 7"):
        run("prepare", *words, tmp_path / "strict")
    assert "replaced: 1 byte that are not UTF-8" in run(
        "prepare", *words, tmp_path / "lenient", "--replace-errors"
    )


def test_all_bad_files_are_named_and_skipped_when_asked(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "good.txt").write_text("the cat sat")
    for name in ("a", "b"):
        (tmp_path / "texts" / f"{name}.txt").write_bytes(b"\xff\xff")
    words = preparation(tmp_path / "texts", tmp_path)
    with pytest.raises(FileError, match=r"(?s)2 of 3.*a\.txt.*b\.txt.*--on-bad-file skip"):
        run("prepare", *words, tmp_path / "out")
    assert "skipped: 2 files" in run("prepare", *words, tmp_path / "out", "--on-bad-file", "skip")
    with pytest.raises(UsageError, match="--replace-errors"):
        run("prepare", *words, tmp_path / "other", "--on-bad-file", "skip", "--replace-errors")
    with pytest.raises(UsageError, match="workers=65,536"):
        run("prepare", *words[:4], 65_536, "-o", tmp_path / "other")
