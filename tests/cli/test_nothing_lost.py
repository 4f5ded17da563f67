"""Every command that writes, with a fault at each call to the disk: nothing that was there is lost.

What the command was not asked to replace is there byte for byte; what it was asked to replace is there as it
was or as it should become; what it made is whole or gone. After a kill, the next call of the same command
leaves what it would have left alone.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.cli import container
from tests.cli.container import Entry
from tests.cli.test_random_commands import BROKEN
from tests.rotation import take_share

FAULTS = ("ENOSPC", "EIO", "EACCES", "full", "killed")
READING = ("open", "scandir", "listdir")
REMOVING = ("unlink", "remove", "rmdir", "scandir", "listdir", "open")
"""Calls without which nothing can be removed: where one fails, what is left has a partial's name."""


@dataclass(frozen=True)
class Writer:
    """A command that writes; `output` is what it makes, or is asked to replace."""

    arguments: list[str]
    output: list[str]
    child: dict[str, str] = field(default_factory=dict)
    resumes: bool = False
    """Whether a failed one leaves what the next goes on with."""


def _export(to: str, output: str, *more: str) -> Writer:
    return Writer(["export", "ours", "--to", to, "-o", output, *more], [output])


FROM = "tests.cli.faulty_disk:"
FETCHED = {"first": f"{FROM}fetch_from_hub"}
PROMPT = "the cat sat in the inn"
TRACE = ["new.json", "new.trace-*.safetensors"]
TOKENS = ["data", "prepare", "plain.txt", "--tokenizer", "tokenizer", "--workers", "1", "--validation", "0.2"]
WRITERS = {
    "train": Writer(["train", "recipe.toml", "out=new"], ["new"], resumes=True),
    "resume": Writer(["train", "--resume", "stopped"], ["stopped"], resumes=True),
    "tokenizer": Writer(["tokenizer", "train", "plain.txt", "--vocab-size", "280", "-o", "new"], ["new"]),
    "prepare": Writer([*TOKENS, "-o", "new"], ["new"], resumes=True),
    "trace": Writer(["trace", "ours", PROMPT, "-o", "new.json"], TRACE),
    "evaluate": Writer(
        ["evaluate", "ours", "plain.txt", "--limit", "1kB", "-o", "new.json"],
        ["new.json", "new.json.partial"],
        resumes=True,
    ),
    "plot": Writer(["plot", "run", "-o", "new.svg"], ["new.svg"]),
    "replot": Writer(["plot", "lora", "--force", "-o", "curves.svg"], ["curves.svg"]),
    "hf": _export("hf", "new/hf"),
    "gguf": _export("gguf", "new.gguf"),
    "pellucid": _export("pellucid", "new"),
    "hf again": _export("hf", "hf", "--dtype", "bfloat16", "--force"),
    "gguf again": _export("gguf", "tiny.gguf", "--force"),
    "pellucid again": _export("pellucid", "mixed/model", "--dtype", "float16", "--force"),
    "import": Writer(["import", "pickled", "-o", "new"], ["new"]),
    "quantize": Writer(
        ["quantize", "ours", "--bits", "8", "--bill", "--on", PROMPT, "-o", "new"], ["new"]
    ),
    "quantize again": Writer(
        ["quantize", "ours", "--bits", "4", "-o", "mixed/model", "--force"], ["mixed/model"]
    ),
    "get": Writer(["get", "hf:org/new"], ["home/models/org--new"], FETCHED),
    "get again": Writer(["get", "hf:org/small", "--force"], ["home/models/org--small"], FETCHED),
    "Model.save": Writer([], ["new"], {"instead": f"{FROM}save_model"}),
    "Model.save_pretrained": Writer([], ["new"], {"instead": f"{FROM}save_pretrained"}),
    "write_trace": Writer([], TRACE, {"instead": f"{FROM}write_trace"}),
    "results": Writer(["generate", "ours", "A", "--max-new-tokens", "1", "-o", "new.jsonl"], ["new.jsonl"]),
    "ledger": Writer(
        ["generate", "ours", PROMPT, "--seed", "7", "--max-new-tokens", "1", "--ledger-file", "new.json"],
        ["new.json"],
    ),
    "page": Writer(["explore", "abcd", "A B", "--export", "new.html", "--size", "200kB"], ["new.html"]),
    "sheet": Writer(["sheet", "abcd", "A B", "--focus", "probs[t=1]", "-o", "new.md"], ["new.md"]),
}  # fmt: skip


class Place:
    """A container that is made anew when something in it has changed."""

    def __init__(self, name: str) -> None:
        self.writer = WRITERS[name]
        self.folder = container.scratch()  # always the same: a trace knows the place of its model
        self.report = container.scratch() / "report"
        self.renew()

    def renew(self) -> None:
        container.remove(self.folder)
        self.work = container.copy(self.folder)
        _cut_off_a_run(self.work)
        self.before, self.untouched = (
            container.snapshot(self.work.parent),
            container.touched(self.work.parent),
        )

    def run(self, at: int = 0, fault: str = "", **more: Any) -> tuple[Any, dict[str, Any]]:
        disk = {"report": str(self.report), "at": at, "fault": fault}
        self.report.unlink(missing_ok=True)
        done = container.run(self.writer.arguments, self.work, disk=disk, **self.writer.child, **more)
        report = (
            json.loads(self.report.read_text()) if self.report.exists() else {"calls": [], "failed": "kill"}
        )
        return done, report

    def after(self) -> dict[str, Entry]:
        return container.snapshot(self.work.parent)


def _cut_off_a_run(work: Path) -> None:
    """A run that was killed before its last checkpoint."""
    import shutil

    shutil.copytree(work / "run", work / "stopped", symlinks=True)
    shutil.rmtree(work / "stopped" / "checkpoints" / "step-0000003")


def part(entries: dict[str, Entry], outputs: list[str]) -> dict[str, Entry]:
    """Returns the entries at and below some paths."""
    places = [pattern for output in outputs for pattern in (f"work/{output}", f"work/{output}/*")]
    return {path: entry for path, entry in entries.items() if any(fnmatchcase(path, at) for at in places)}


def others(entries: dict[str, Entry], outputs: list[str]) -> dict[str, Entry]:
    inside = part(entries, outputs)
    return {path: entry for path, entry in entries.items() if path not in inside}


def check(name: str, fault: str, choose: Callable[[Sequence[int]], Iterable[int]] = iter) -> None:
    """Runs a command once for each call to the disk that `choose` takes, which fails."""
    place = Place(name)
    writer = place.writer
    done, report = place.run()
    assert done.code == 0, done.text
    count, wanted = len(report["calls"]), place.after()
    assert "create" in report["calls"] and "fsync" in report["calls"]
    place.renew()
    for at in choose(range(1, count + 1)):
        where = f"{name}: {fault} at call {at} of {count}"
        done, report = place.run(at, fault)
        where += f", {report['failed']}, exit code {done.code}: {done.text[-1500:]}"
        assert not any(word in done.text for word in BROKEN) and not done.hung, where
        codes = {"killed": (0, -9), "EACCES": (0, 2)}.get(fault, (0, 3))
        # a run looks at what it saved; where that cannot be read, the checkpoint counts as damaged
        damaged = writer.resumes and report["failed"] in READING and done.code == 2
        assert done.code in codes or damaged, where
        after = place.after()
        assert not container.lost(others(place.before, writer.output), after), where
        new = others(after, writer.output).keys() - place.before.keys() - _folders_above(writer)
        if fault != "killed" and report["failed"] not in REMOVING:
            assert not new, f"{where}\nleft {sorted(new)}"
        assert all(container.leftovers([path]) or "partial" in path for path in new), where
        made, old = part(after, writer.output), part(place.before, writer.output)
        if not writer.resumes:
            new = part(wanted, writer.output)
            # of two files, a kill may leave the first, whole
            whole = made.items() <= new.items() if fault == "killed" else made == new
            assert whole or made == old, f"{where}\n{sorted(made)}"
        done_already = made == part(wanted, writer.output)  # and the last fsync failed
        if done.code != 0 and (writer.resumes or (after != place.before and not done_already)):
            _go_on(place, wanted, where)
        if container.touched(place.work.parent) != place.untouched:
            place.renew()
    container.remove(place.folder)


def _folders_above(writer: Writer) -> set[str]:
    """The folders that a new output needs; they may stay where removing is what fails."""
    return {os.path.dirname(f"work/{output}") for output in writer.output}


def _go_on(place: Place, wanted: dict[str, Entry], where: str) -> None:
    """The next call does what the failed one should have done, and leaves nothing else."""
    writer = place.writer
    if writer.arguments[0:1] == ["train"]:
        started = (place.work / "new" / "recipe.toml").exists()
        place.writer = Writer(["train", "--resume", "new"] if started else writer.arguments, writer.output)
        if writer.arguments[1] == "--resume":
            place.writer = writer
    if writer.arguments[0:1] == ["evaluate"] and (place.work / "new.json").exists():
        # the file was written, and its journal not yet removed
        place.writer = Writer([*writer.arguments, "--force"], writer.output)
    done, _ = place.run()
    place.writer = writer
    assert done.code == 0, f"{where}\nthen: {done.text}"
    after = place.after()
    if writer.arguments[0:1] == ["train"]:
        assert after.keys() == wanted.keys(), f"{where}\n{sorted(after.keys() ^ wanted.keys())}"
    else:
        assert after == wanted, (
            f"{where}\n{container.lost(wanted, after)}, {sorted(after.keys() - wanted.keys())}"
        )


@pytest.mark.parametrize("name", WRITERS)
def test_a_fault_at_a_call_to_the_disk_loses_nothing(name: str) -> None:
    """Two of a tenth of the calls (of a training's, one), each with one of the faults; `make torture` has
    all."""
    fault = FAULTS[list(WRITERS).index(name) % len(FAULTS)]
    check(name, fault, lambda calls: take_share(calls)[: 1 if name in ("train", "resume") else 2])


@pytest.mark.torture
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_fault_at_any_call_to_the_disk_loses_nothing(name: str, fault: str) -> None:
    check(name, fault)


def check_kills(name: str, count: int) -> None:
    """Kills at random moments, between calls to the disk as well; then the same command once more."""
    place, draw = Place(name), random.Random(name)
    begun = time.monotonic()
    done, _ = place.run()
    takes, wanted = time.monotonic() - begun, place.after()
    assert done.code == 0, done.text
    for _ in range(count):
        place.renew()
        done, _ = place.run(then=signal.SIGKILL, delay=draw.uniform(0.01, takes))
        after, where = place.after(), f"{name}: killed, {done.code}: {done.text}"
        assert not container.lost(others(place.before, place.writer.output), after), where
        if done.code != 0:
            whole = part(after, place.writer.output) == part(wanted, place.writer.output)
            again, _ = place.run()
            refused = whole and again.code == 2  # it was there already, and only its exit was cut off
            assert again.code == 0 or refused, f"{where}\n{again.text}"
            assert place.after() == wanted, f"{where}\n{sorted(place.after().keys() ^ wanted.keys())}"
    container.remove(place.folder)


KILLED = ("hf", "gguf again", "get", "get again", "prepare", "tokenizer", "pellucid again")


@pytest.mark.rotating
@pytest.mark.parametrize("name", KILLED)
def test_after_a_kill_the_next_call_sweeps_and_completes(name: str) -> None:
    check_kills(name, 2)


@pytest.mark.torture
@pytest.mark.parametrize("name", KILLED)
def test_after_many_kills_the_next_call_sweeps_and_completes(name: str) -> None:
    check_kills(name, 100)
