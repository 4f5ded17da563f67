"""Closed streams, readers that leave, and the exit code of every way to end."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.training.saving.run_folder import RunFolder
from tests.cli import container
from tests.cli.container import TINY
from tests.cli.fork_server import Done
from tests.cli.random_lines import commands
from tests.cli.test_random_commands import BROKEN

LINES = {
    "get": ["smollm2"],
    "list": [],
    "inspect": ["ours"],
    "choices": ["rope"],
    "train": ["recipe.toml", "out=NEW"],
    "generate": ["ours", "-", "--max-new-tokens", "2"],
    "chat": ["ours", "--max-new-tokens", "2"],
    "serve": ["ours", "--port", "0"],
    "evaluate": ["ours", "plain.txt", "--limit", "500B", "-o", "NEW.json"],
    "calibrate": ["ours", "plain.txt", "--limit", "500B", "-o", "NEW.svg"],
    "quantize": ["ours", "--bits", "8", "-o", "NEW"],
    "explain": ["abcd", "A B", "--at", "probs"],
    "explore": ["abcd", "A B", "--export", "NEW.html"],
    "trace": ["abcd", "A B", "-o", "NEW.json"],
    "look": ["abcd", "A B", "-o", "NEW.html"],
    "replay": ["small.json"],
    "learn": [],
    "sheet": ["abcd", "A B", "--focus", "probs[t=1]", "-o", "NEW.md"],
    "mark": ["sheet.md", "--no-record"],
    "runs": ["."],
    "plot": ["run"],
    "verify": ["words.toml", "--quick"],
    "compare": ["small.json", "small.json"],
    "export": ["ours", "--to", "hf", "-o", "NEW"],
    "import": ["pickled", "-o", "NEW"],
    "tokenizer train": ["plain.txt", "--vocab-size", "280", "-o", "NEW"],
    "tokenizer encode": ["tokenizer"],
    "tokenizer decode": ["tokenizer"],
    "tokenizer explain": ["tokenizer", "the cat"],
    "tokenizer compare": ["tokenizer", "bytes", "--on", "plain.txt"],
    "data prepare": ["plain.txt", "--tokenizer", "tokenizer", "--workers", "1", "-o", "NEW"],
    "data show": ["tokens"],
}
"""A line of each command that succeeds; NEW is a name that is not there yet."""
LONG = ("train", "verify", "serve")


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    work = container.copy(container.scratch())
    yield work
    container.remove(work.parent)


def line(name: str, new: str) -> list[str]:
    return [*name.split(), *(word.replace("NEW", new) for word in LINES[name])]


def clean(done: Done) -> bool:
    return not done.hung and not any(word in done.text for word in BROKEN)


def test_every_command_has_a_line() -> None:
    assert set(LINES) == set(commands())


@pytest.mark.rotating
@pytest.mark.parametrize(
    "closed", [("stdin",), ("stdout",), ("stderr",), ("stdin", "stdout", "stderr")], ids=str
)
def test_closed_streams_do_not_fail(work: Path, closed: tuple[str, ...]) -> None:
    for name in LINES:
        if name in LONG and len(closed) == 1:
            continue
        reads = "stdin" in closed and name == "generate"  # an empty prompt may be refused
        done = container.run(
            line(name, f"new-{len(closed)}-{closed[0]}-{name}"), work, closed=closed, stdin=b"7"
        )
        assert clean(done) and (done.code == 0 or (reads and done.code == 2)), f"{name}: {done}"


def test_a_file_is_not_written_over_by_what_goes_to_a_closed_stream(work: Path) -> None:
    """The next file that is opened would have the number of standard output."""
    done = container.run(["trace", "abcd", "A B", "-o", "closed.json"], work, closed=("stdout", "stderr"))
    assert done.code == 0 and json.loads((work / "closed.json").read_bytes())


def test_a_reader_that_has_left_does_not_fail_the_command(work: Path) -> None:
    for name in LINES:
        reader, writer = os.pipe()
        os.close(reader)
        done = container.run(line(name, f"left-{name}"), work, stdout=writer, stdin=b"7")
        os.close(writer)
        assert clean(done) and done.code == 0, f"{name}: {done}"
        if name in ("train", "quantize", "export", "import", "data prepare"):
            assert any((work / f"left-{name}").iterdir()), name
        if name == "train":  # the view ends, and never the run
            assert RunFolder(work / f"left-{name}").read_status() == ("finished", 3)


def test_head_of_every_help_and_of_a_long_list_does_not_fail(work: Path) -> None:
    helps = [[*name.split(), "--help"] for name in ("", "tokenizer", "data", *LINES)]
    for arguments in (*helps, ["choices"]):
        done = container.run(arguments, work, leave=True)
        assert clean(done) and done.code == 0 and not done.err, f"{arguments}: {done}"


@pytest.mark.parametrize("name", ["tokenizer encode", "tokenizer decode", "tokenizer explain", "generate"])
def test_input_that_is_not_text_is_refused(work: Path, name: str) -> None:
    arguments = [*name.split(), "ours", *["-"] * (name == "generate")]
    done = container.run(arguments, work, stdin=b"the \xff")
    assert done.code == 2 and clean(done) and b"byte 4 is 0xff" in done.err, done


@pytest.mark.parametrize(
    "arguments", [["replay"], ["train"], ["inspect"], ["compare", "small.json"]], ids=str
)
@pytest.mark.parametrize("suffix", ["", ".json", ".toml", ".npz", ".gguf"])
def test_a_pipe_without_a_writer_is_not_waited_for(work: Path, arguments: list[str], suffix: str) -> None:
    if not (work / f"pipe{suffix}").exists():
        os.mkfifo(work / f"pipe{suffix}")
    done = container.run([*arguments, f"pipe{suffix}"], work, seconds=5)
    assert done.code == 2 and clean(done), done


def test_compiled_values_without_a_compiler_are_refused(work: Path) -> None:
    done = container.run(["trace", "ours", "the", "--path", "compiled", "-o", "compiled.json"], work)
    assert done.code == 2 and b"C++ compiler" in done.err


# ---- exit codes


def test_0_success(work: Path) -> None:
    assert container.run(["list"], work).code == 0


def test_1_a_check_failed(work: Path) -> None:
    data = json.loads((work / "small.json").read_bytes())
    data["tensors"]["probs"]["values"][0][0][0] += 0.5
    (work / "changed.json").write_text(json.dumps(data))
    assert container.run(["replay", "changed.json"], work).code == 1
    assert container.run(["compare", "small.json", "changed.json"], work).code == 1


def test_3_a_full_disk(work: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    done = container.run(["list"], work, stdout=full)
    os.close(full)
    assert (done.code, done.err) == (3, b"pellucid: No space left on device.\n")


@pytest.mark.parametrize("name", ["export", "import", "trace", "data prepare", "tokenizer train", "train"])
def test_3_a_file_that_the_system_refuses(work: Path, name: str) -> None:
    before = container.snapshot(work)
    done = container.run(line(name, "refused"), work, file_size=400)
    assert done.code == 3 and clean(done), done
    after = container.snapshot(work)
    assert not container.lost(before, after)
    assert name == "train" or before.keys() == after.keys(), after.keys() - before.keys()


def test_3_no_memory(work: Path) -> None:
    large = ["model.d_model=4096", "model.d_ff=65536", "model.n_head=2", "out=large"]
    changes = [change for change in TINY if change.split("=")[0] not in str(large)]
    done = container.run(["train", "recipe.toml", *changes, *large], work, memory=1 << 30)
    assert done.code == 3 and clean(done), done


def test_130_interrupted(work: Path) -> None:
    done = container.run(
        ["tokenizer", "train", "-", "-o", "never"], work, stdin=None, then=signal.SIGINT, delay=0.5
    )
    assert done.code == 130 and clean(done), done


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_run_that_gets_a_signal_saves(work: Path, number: int, code: int) -> None:
    out = f"ended-{code}"
    arguments = ["train", "recipe.toml", f"out={out}", "steps=1000000", "checkpoint.every=1000000", "--plain"]
    done = container.run(arguments, work, until=b"loss", then=number)
    assert done.code == code and clean(done), done
    assert (work / out / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_commands_end_as_every_program_does(work: Path, number: int) -> None:
    """A shell shows 143 and 129."""
    done = container.run(["tokenizer", "train", "-", "-o", "never"], work, stdin=None, then=number, delay=0.5)
    assert done.code in (-number, 128 + number) and clean(done), done
    assert not (work / "never").exists()
