"""Tokenizers, token files and batches: their speed, each beside its peer in the same run.

python -m benchmarks.text [--data DIR]

DIR holds books-train.txt.xz; it defaults to the environment variable PELLUCID_DATA.
"""

import argparse
import datetime
import json
import lzma
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import tiktoken
import tokenizers

from benchmarks.specification import timed
from pellucid.data.loader import DataLoader
from pellucid.data.rows import Rows
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.tokens import TokenFolder
from pellucid.text.chunking import chunks
from pellucid.text.kinds import train
from pellucid.text.standard import GPT2_SPLIT, to_bytes
from pellucid.text.tokenizer import Tokenizer

BOOKS, RULE = "books-train.txt.xz", "separator=U+001E"
MB = 10**6
PREPARE = (
    "import sys; from pathlib import Path; from pellucid.data.prepare import prepare\n"
    "from pellucid.text.corpus import Corpus\n"
    "prepare(Corpus([sys.argv[1]], split=sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))"
)
PEER = (
    "import sys, tiktoken; from pellucid.text.from_files import from_pretrained\n"
    "encoding = from_pretrained(sys.argv[2])._fast; text = open(sys.argv[1], encoding='utf-8').read()\n"
    "size = len(text) // int(sys.argv[4]); start = int(sys.argv[3]) * size\n"
    "for at in range(start, start + size, 2**19):\n"
    "    encoding.encode_ordinary(text[at : min(at + 2**19, start + size)])"
)


def best(count: int, *runs: Callable[[], object]) -> list[float]:
    """The shortest time of each; they take turns, so that a busy machine slows all of them."""
    times = [[timed(run) for run in runs] for _ in range(count)]
    return [min(column) for column in zip(*times, strict=True)]


def tiktoken_of(tokenizer: Tokenizer, folder: Path) -> tiktoken.Encoding:
    """tiktoken itself, with the ranks of a byte-level BPE."""
    vocab = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    special = {name: vocab[name] for name in tokenizer.special.names()}
    ranks = {to_bytes(token): id for token, id in vocab.items() if token not in special}
    return tiktoken.Encoding("peer", pat_str=GPT2_SPLIT, mergeable_ranks=ranks, special_tokens=special)


def encoding(text: str, tokenizer: Tokenizer, folder: Path) -> None:
    peer = tiktoken_of(tokenizer, folder)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(text) == peer.encode_ordinary(text) == library.encode(text).ids
    ours, theirs, slow = best(
        3, lambda: tokenizer.encode(text), lambda: peer.encode_ordinary(text), lambda: library.encode(text)
    )
    size = len(text.encode()) / MB
    print(f"encode {size:.1f} MB of English            {size / ours:7.1f} MB/s")
    for name, seconds, asked in (("tiktoken itself", theirs, "0.95"), ("tokenizers.encode", slow, "10")):
        ratio = f"ours is {seconds / ours:.2f} × (asked ≥ {asked})"
        print(f"  {name:<32} {size / seconds:7.1f} MB/s  {ratio}")


def library_trainer() -> tuple[Any, Any]:
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8192, special_tokens=["<end>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    return library, trainer


def training(text: str, folder: Path) -> None:
    """The library reads a file by its lines; we are given an iterator of texts, of whatever size."""
    file = folder / "thirty.txt"
    file.write_text(text, "utf-8")

    def peer() -> None:
        library, trainer = library_trainer()
        library.train([str(file)], trainer)

    lines = text.splitlines(keepends=True)
    fed = {
        "documents": text.split("\n\x1e\n"),
        "lines": lines,
        "batches of 100 lines": ["".join(lines[i : i + 100]) for i in range(0, len(lines), 100)],
        "chunks": list(chunks(text, 1 << 14)),
    }
    theirs, *ours = best(2, peer, *(lambda texts=texts: train("bpe", texts, 8192) for texts in fed.values()))
    size = len(text.encode()) / MB
    print(f"train BPE 8,192 on {size:.0f} MB: tokenizers from a file  {theirs:.2f} s")
    for what, seconds in zip(fed, ours, strict=True):
        print(f"  ours, fed with {what:<23}     {seconds:.2f} s  {seconds / theirs:.2f} × (asked ≤ 1.1)")


def one_letter(tokenizer: Tokenizer) -> None:
    times = best(3, *(lambda n=n: tokenizer.encode("a" * (n * MB)) for n in (1, 2, 4)))
    shown = ", ".join(f"{seconds:.3f} s" for seconds in times)
    print(f"one letter 1, 2, 4 million times   {shown}  (asked ≤ 1 s for the first, and linear)")


class Memory:
    """The most memory that a process and its children ever had together; shared pages count for each."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak = pid, 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while sizes := [size for pid in self._family(self.pid) if (size := self._resident(pid))]:
            self.peak = max(self.peak, sum(sizes))
            time.sleep(0.02)

    def _family(self, pid: int) -> Iterator[int]:
        yield pid
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                yield from map(int, children.read_text().split())
            except OSError:
                continue

    def _resident(self, pid: int) -> int:
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0


def preparing(source: Path, size: int, rule: str, tokenizer: Path, out: Path, what: str) -> float:
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", PREPARE, str(source), rule, str(tokenizer), str(out)])
    memory = Memory(process.pid)
    assert process.wait() == 0
    speed = size / (time.perf_counter() - start) / MB
    print(f"prepare {size / MB:.0f} MB, {what:<16}   {speed:7.1f} MB/s  (asked ≥ 20 on two free cores)")
    print(f"  peak memory of all processes     {memory.peak / 2**20:7.0f} MiB  (asked < 1024)")
    return speed


def prepare_peer(text: Path, size: int, tokenizer: Path, ours: float) -> None:
    """tiktoken alone: one process for each core, no reading by documents, no checksums, nothing written."""
    cores = len(os.sched_getaffinity(0))
    start = time.perf_counter()
    words = [sys.executable, "-c", PEER, str(text), str(tokenizer)]
    processes = [subprocess.Popen([*words, str(i), str(cores)]) for i in range(cores)]
    assert all(process.wait() == 0 for process in processes)
    speed = size / (time.perf_counter() - start) / MB
    print(f"  tiktoken alone, {cores} processes       {speed:7.1f} MB/s  ours is {ours / speed:.2f} ×")


def loading(folder: Path) -> None:
    tokens = TokenFolder(folder)["train"]
    ways: dict[str, Callable[[int], Rows]] = {
        "windows": lambda T: Windows(tokens, T),
        "packed": lambda T: Packed(tokens, T, bos=0),
        "padded": lambda T: Padded(tokens, T, bos=0),
        "streams": lambda T: Streams(tokens, T),
    }
    for name, way in ways.items():
        for B, T in ((32, 256), (16, 1024)):
            asked = "  (asked ≥ 50)" if name == "windows" else ""
            print(f"load {name:<8} B={B} T={T:<16} {load_speed(way(T), B):7.0f} M tokens/s{asked}")


def load_speed(rows: Rows, batch_size: int) -> float:
    """Million tokens per second, on one core: nothing is made ahead by a thread."""
    loader, count = DataLoader(rows, batch_size, prefetch=0), 10 * MB // (batch_size * rows.length)
    (seconds,) = best(3, lambda: deque(islice(loader, count), 0))
    return count * batch_size * rows.length / seconds / MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("PELLUCID_DATA"))
    folder = parser.parse_args().data
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{datetime.date.today()}  {machine}")
    versions = (f"{name} {metadata.version(name)}" for name in ("tiktoken", "tokenizers", "numpy"))
    print(f"{', '.join(versions)}; python -m benchmarks.text --data {folder}")
    if folder is None or not (Path(folder) / BOOKS).exists():
        print(f"{BOOKS} is not there: give its folder with --data or PELLUCID_DATA. Nothing can be measured.")
        return
    with tempfile.TemporaryDirectory() as name:
        temporary, packed = Path(name), Path(folder) / BOOKS
        with lzma.open(packed, "rt", encoding="utf-8", newline="") as file:
            text = file.read()
        books = temporary / "books.txt"
        books.write_bytes(text.encode())
        size = books.stat().st_size
        thirty, five = text[: 30 * MB], text[: 5 * MB]
        del text
        tokenizer = train("bpe", [thirty], 8192)
        tokenizer.save(temporary / "tokenizer")
        encoding(five, tokenizer, temporary / "tokenizer")
        training(thirty, temporary)
        one_letter(tokenizer)
        del thirty, five
        speed = preparing(books, size, RULE, temporary / "tokenizer", temporary / "out", "270 books")
        prepare_peer(books, size, temporary / "tokenizer", speed)
        preparing(books, size, "file", temporary / "tokenizer", temporary / "whole", "one document")
        preparing(packed, size, RULE, temporary / "tokenizer", temporary / "xz", "from .xz")
        loading(temporary / "out")


if __name__ == "__main__":
    main()
