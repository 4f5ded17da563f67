"""Token files: the same to the byte however they were made, and never half-made."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.base.errors import FileError, PellucidError, TokenError
from pellucid.data import batches as batching
from pellucid.data.manifest import NAME, PROGRESS
from pellucid.data.prepare import EncodingProgress, prepare
from pellucid.data.tokens import TokenFolder
from pellucid.text.corpus import Corpus
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Special
from tests.data.small_corpora import contents, made_before, prepared, text_file, tokenizer_folder


def corpus(folder: Path, documents: int = 60, **settings: object) -> Corpus:
    text = folder / "text.txt"
    if not text.exists():
        text_file(text, documents)
    return Corpus([text], **{"split": "line", **settings})  # type: ignore[arg-type]


def test_token_files_hold_the_documents_in_order_each_with_its_end() -> None:
    folder = made_before().parent
    out, tokenizer = TokenFolder(folder / "out"), from_pretrained(folder / "tokenizer")
    train, lines = out["train"], (folder / "text.txt").read_text("utf-8").split("\n")
    assert train.documents == len(lines) and len(train.shards) > 5
    for i, line in enumerate(lines):
        assert train.document(i).tolist() == [*tokenizer.encode(line), tokenizer.id_of("<end>")]
    assert len(train) == sum(len(tokenizer.encode(line)) + 1 for line in lines)
    out.verify()


def test_the_manifest_says_what_is_there() -> None:
    out = made_before(validation=0.3)
    manifest, source = json.loads((out / NAME).read_text("utf-8")), out.parent / "text.txt"
    text, totals = source.read_bytes(), manifest["totals"]
    assert sum(part["documents"] for part in totals.values()) == text.count(b"\n") + 1
    assert sum(part["text_bytes"] for part in totals.values()) == len(text.replace(b"\n", b""))
    assert totals["validation"]["documents"] > 3
    assert manifest["tokenizer"]["end"] == 0 and manifest["tokenizer"]["kind"] == "bpe"
    assert manifest["settings"]["sources"] == [{"file": str(source), "bytes": len(text)}]


def test_a_document_goes_to_the_part_that_the_corpus_gives_it() -> None:
    folder = made_before(validation=0.3).parent
    out, tokenizer = TokenFolder(folder / "out"), from_pretrained(folder / "tokenizer")
    for part in ("train", "validation"):
        texts = [document.text for document in corpus(folder, validation=0.3).documents(part)]
        stored = [tokenizer.decode(out[part].document(i)[:-1].tolist()) for i in range(out[part].documents)]
        assert stored == texts


def test_without_an_end_token_none_is_stored(tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path / "tokenizer", special=Special())
    manifest = prepare(corpus(tmp_path), folder, tmp_path / "out", workers=1)
    first = (tmp_path / "text.txt").read_text("utf-8").split("\n")[0]
    assert manifest.tokenizer.end is None
    assert TokenFolder(tmp_path / "out")["train"].document(0).tolist() == from_pretrained(folder).encode(
        first
    )


def test_the_bytes_are_the_same_for_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "SIZE", 300)  # many batches, and documents that are cut
    source, tokenizer = corpus(tmp_path, validation=0.2), tokenizer_folder(tmp_path / "tokenizer")
    for workers in (1, 2, 5):
        prepare(source, tokenizer, tmp_path / f"out{workers}", workers, shard_tokens=300)
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2") == contents(tmp_path / "out5")


@pytest.mark.parametrize("size", [1, 300, 1 << 20])
def test_the_bytes_do_not_depend_on_how_documents_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source, tokenizer = corpus(tmp_path, documents=15), tokenizer_folder(tmp_path / "tokenizer")
    prepare(source, tokenizer, tmp_path / "one", 1, shard_tokens=300)
    monkeypatch.setattr(batching, "SIZE", size)
    prepare(source, tokenizer, tmp_path / "other", 1, shard_tokens=300)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_a_document_that_is_cut_for_encoding_is_one_document(tmp_path: Path) -> None:
    draw = random.Random(1)
    text = " ".join(draw.choice(["the", "cat", "sat"]) for _ in range(600_000))
    (tmp_path / "long.txt").write_text(text)
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    prepare(Corpus([tmp_path / "long.txt"]), tokenizer, tmp_path / "out", workers=2)
    train = TokenFolder(tmp_path / "out")["train"]
    assert train.documents == 1 and len(text) > 2 * batching.SIZE
    assert train.document(0)[:-1].tolist() == from_pretrained(tokenizer).encode(text)


# ---- going on after an interruption

SCRIPT = """
import sys, time
from pathlib import Path
from pellucid.data import batches
from pellucid.data.prepare import prepare
from pellucid.text.corpus import Corpus
batches.SIZE = 2000
text, tokenizer, out = map(Path, sys.argv[1:4])
corpus = Corpus([text], split="line", validation=0.2)
prepare(corpus, tokenizer, out, 2, lambda _: time.sleep(0.003), shard_tokens=3000)
"""


FULL = 40_000
"""Bytes that a file may have on the disk that is full: more than the tokenizer has, fewer than the shard."""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_killed_at_any_time_and_started_again_the_bytes_are_the_same(tmp_path: Path, kills: int) -> None:
    text = text_file(tmp_path / "text.txt", 1200)
    command = [sys.executable, "-c", SCRIPT, str(text), str(tokenizer_folder(tmp_path / "tokenizer"))]
    start = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    whole, draw, run = time.monotonic() - start, random.Random(kills), 0
    killed = 0
    while killed < kills:
        out, run = tmp_path / f"killed{run}", run + 1
        for _ in range(8):
            process = subprocess.Popen([*command, str(out)])
            try:
                process.wait(draw.uniform(0.3, 1.0) * whole)
                break
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
        subprocess.run([*command, str(out)], check=True)
        assert contents(out) == contents(tmp_path / "whole")


def interrupt_after(shards: int, out: Path) -> Callable[[EncodingProgress], None]:
    def stop(_: EncodingProgress) -> None:
        if len(list(out.glob("*.tokens"))) >= shards:
            raise KeyboardInterrupt

    return stop


Interrupted = tuple[Corpus, Path, Path]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a preparation was interrupted after three shards; its paths are relative."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(batching, "SIZE", 300)
        source, tokenizer, out = corpus(Path()), tokenizer_folder(Path("tokenizer")), Path("out")
        with pytest.raises(KeyboardInterrupt):
            prepare(source, tokenizer, out, 1, interrupt_after(3, out), shard_tokens=200)
    return folder


@pytest.fixture
def half_done(interrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    shutil.copytree(interrupted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batching, "SIZE", 300)
    return corpus(Path()), Path("tokenizer"), Path("out")


def test_finished_shards_are_kept_and_nothing_half_written(half_done: Interrupted) -> None:
    source, tokenizer, out = half_done
    names = {path.name for path in out.iterdir()}
    assert {"train-00000.tokens", "train-00002.tokens", PROGRESS} <= names and NAME not in names
    assert not [name for name in names if "partial" in name]
    before = (out / "train-00000.tokens").stat().st_mtime_ns
    for folder in (out, out / "tokenizer"):  # as a kill leaves them
        (folder / ".pellucid-0123456789ab-01234567.partial").write_bytes(b"half")
    prepare(source, tokenizer, out, 1, shard_tokens=200)
    assert (out / "train-00000.tokens").stat().st_mtime_ns == before
    prepare(source, tokenizer, Path("whole"), 1, shard_tokens=200)
    assert contents(out) == contents(Path("whole"))


def test_what_was_killed_before_it_had_begun_leaves_nothing(tmp_path: Path) -> None:
    source, tokenizer, out = corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out"
    out.mkdir()
    (out / ".pellucid-0123456789ab-01234567.partial").write_bytes(b"half")
    prepare(source, tokenizer, out, 1)
    assert not list(out.rglob("*.partial"))


def test_a_finished_shard_that_is_damaged_is_made_anew(half_done: Interrupted) -> None:
    source, tokenizer, out = half_done
    shard = out / "train-00001.tokens"
    shard.write_bytes(shard.read_bytes()[:-1])
    prepare(source, tokenizer, out, 1, shard_tokens=200)
    whole = contents(out)
    shard.unlink()
    prepare(source, tokenizer, out, 1, shard_tokens=200)
    assert contents(out) == whole


def test_text_that_changed_meanwhile_is_refused(half_done: Interrupted) -> None:
    source, tokenizer, out = half_done
    text = Path("text.txt")
    text.write_bytes(bytes([text.read_bytes()[0] ^ 1]) + text.read_bytes()[1:])
    with pytest.raises(FileError, match=r"train-00000\.tokens"):
        prepare(source, tokenizer, out, 1, shard_tokens=200)


def test_text_that_ends_before_the_finished_shards_is_refused(half_done: Interrupted) -> None:
    source, tokenizer, out = half_done
    text = Path("text.txt")
    size = text.stat().st_size
    text.write_bytes(text.read_bytes()[:50].ljust(size))
    with pytest.raises(FileError, match="the text has changed"):
        prepare(source, tokenizer, out, 1, shard_tokens=200)


def test_a_finished_folder_is_left_as_it_is() -> None:
    out = made_before()
    times = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert prepared(out.parent) == out
    assert times == {path: path.stat().st_mtime_ns for path in out.iterdir()}


def test_other_settings_are_refused_and_named() -> None:
    out = made_before()
    with pytest.raises(FileError, match=r"validation is 0\.0, not 0\.5; shard_tokens is 200"):
        prepare(corpus(out.parent, validation=0.5), out.parent / "tokenizer", out)


def test_another_tokenizer_is_refused_and_named(tmp_path: Path) -> None:
    out, other = made_before(), tokenizer_folder(tmp_path / "other", special=Special(eos="<stop>"))
    with pytest.raises(FileError, match="the tokenizer's sha256 is"):
        prepare(corpus(out.parent), other, out, shard_tokens=200)


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"it holds text\.txt"):
        prepare(corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path)


def test_two_processes_do_not_make_one_folder(tmp_path: Path) -> None:
    source, tokenizer, out = corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out"

    def meanwhile(_: EncodingProgress) -> None:
        prepare(source, tokenizer, out, 1)

    with pytest.raises(FileError, match="another process"):
        prepare(source, tokenizer, out, 1, meanwhile)


def test_no_process_is_left_when_the_main_one_is_killed(tmp_path: Path) -> None:
    text = text_file(tmp_path / "text.txt", 2000)
    command = [sys.executable, "-c", SCRIPT, str(text), str(tokenizer_folder(tmp_path / "tokenizer"))]
    process = subprocess.Popen([*command, str(tmp_path / "out")])
    children: list[int] = []
    while not children:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        children = [int(pid) for pid in found]
        time.sleep(0.01)
    time.sleep(0.5)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while any(_runs(child) for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [child for child in children if _runs(child)]


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


# ---- what cannot be


def test_text_that_the_tokenizer_cannot_read_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat\nthe dog", "utf-8")
    tokenizer = tokenizer_folder(tmp_path / "tokenizer", kind="words", special=Special(eos="<end>"))
    config = json.loads((tokenizer / "tokenizer.json").read_text("utf-8"))
    config["model"]["unk_token"] = None
    (tokenizer / "tokenizer.json").write_text(json.dumps(config))
    with pytest.raises(TokenError, match=r"text.txt, .* byte 8: .*'dog'"):
        prepare(corpus(tmp_path), tokenizer, tmp_path / "out", 1)


def test_a_worker_that_dies_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "SIZE", 300)
    me = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    others = set(me.read_text().split())

    def kill_one(_: EncodingProgress) -> None:
        for child in set(me.read_text().split()) - others:
            os.kill(int(child), signal.SIGKILL)

    with pytest.raises(FileError, match="code -9"):
        prepare(corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out", 1, kill_one)


def test_a_disk_that_cannot_be_written_is_an_error_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        prepare(corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "file" / "out")


def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    text, tokenizer = text_file(tmp_path / "text.txt", 1200), tokenizer_folder(tmp_path / "tokenizer")
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, 2 * ({FULL},))"
    script = f"{full}\n{SCRIPT.replace('3000', '10**6')}"
    command = [sys.executable, "-c", script, str(text), str(tokenizer), str(tmp_path / "out")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert "ResourceError: cannot write" in last and "train-00000.tokens: File too large." in last
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_tokenizer_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="tokenizer"):
        prepare(corpus(tmp_path), tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": 10**5}, "workers=100,000"),
        ({"shard_tokens": 0}, "shard_tokens=0"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(PellucidError, match=message):
        prepare(corpus(tmp_path), tmp_path / "tokenizer", tmp_path / "out", **settings)


def test_progress_reaches_the_size_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "SIZE", 300)
    seen: list[EncodingProgress] = []
    prepare(corpus(tmp_path), tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out", 1, seen.append)
    assert [p.bytes for p in seen] == sorted(p.bytes for p in seen)
    text = (tmp_path / "text.txt").read_bytes()
    assert seen[0].total == len(text) and seen[0].seconds_left
    assert seen[-1].bytes == seen[-1].total == len(text.replace(b"\n", b"")) and seen[-1].seconds_left == 0


def test_the_size_that_is_expected_is_that_of_the_text_not_of_its_wrapping(tmp_path: Path) -> None:
    lines = [json.dumps({"meta": "x" * 60, "text": f"the cat sat {i}"}) for i in range(200)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    seen: list[EncodingProgress] = []
    source = Corpus([tmp_path / "text.jsonl"], chunk=100)
    prepare(source, tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out", 1, seen.append)
    assert seen[0].total == seen[-1].bytes == sum(len(f"the cat sat {i}") for i in range(200))


def test_the_size_of_packed_text_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"the cat\nsat"))
    seen: list[EncodingProgress] = []
    source = Corpus([tmp_path / "text.txt.gz"], split="line")
    prepare(source, tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "out", 1, seen.append)
    assert seen[0].total is None and seen[0].seconds_left is None and seen[0].bytes == 10
