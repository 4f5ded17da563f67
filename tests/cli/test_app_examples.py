"""Every command's help shows two examples, and every one of them runs."""

import shlex
import signal
from pathlib import Path

import pytest

from pellucid.cli.app import EXAMPLES, command_tree, leaf_commands
from pellucid.learning.sheets.file import write_sheet
from pellucid.server.http.listen import DrainingServer
from pellucid.verification.checks.catalogue import CHECKS
from tests.cli import container
from tests.cli.commands import Shell
from tests.cli.test_export import save_tiny
from tests.formats.test_pickled import pickled_folder
from tests.learning.sheets.by_hand import answer
from tests.model import folders
from tests.model.test_model_chat import CHATML

FIRST = ("train", "tokenizer train", "data prepare", "trace")
"""The commands whose examples write the files that other examples name."""


async def end_at_once(server: DrainingServer) -> None:
    """A server that gets its signal before anything is asked of it."""
    server.ended_by = signal.SIGTERM


@pytest.fixture
def shell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr("pellucid.server.explorer.serve.open_browser", lambda address: True)
    monkeypatch.setattr("pellucid.server.http.listen.DrainingServer.main_loop", end_at_once)
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", container.without_numbers(CHECKS))
    return shell


def test_every_example_runs(shell: Shell, tmp_path: Path) -> None:
    """In a folder with a text, a checkpoint, a sheet, and a library in which known models are tiny ones."""
    text = "".join(f"Once upon a time there was cat number {i}. It sat on the mat.\n" for i in range(200))
    (tmp_path / "my.txt").write_text(text)
    shape = folders.random_models.LLAMA | {"context_length": 500}
    folders.ours(shell.home / "models/smollm2", shape, chat_template=CHATML)
    save_tiny(shell.home / "models/HuggingFaceTB--SmolLM2-135M")
    pickled_folder(tmp_path / "checkpoint", dtype="float32")
    write_sheet(tmp_path / "answered.md", answer())
    for name in sorted(EXAMPLES, key=lambda name: name not in FIRST):
        for line in EXAMPLES[name]:
            out = ""
            for command in line.replace("--minutes 10", "--minutes 0.1 steps=4 train.compile=false").split(
                "|"
            ):
                program, *arguments = shlex.split(command)
                done = shell(*arguments, stdin=out.encode())
                assert (program, done.code) == ("pellucid", 0), f"{line}\n{done.err}"
                out = done.out


def test_every_command_has_two_examples_of_itself() -> None:
    assert set(EXAMPLES) == {name for name, _ in leaf_commands(command_tree())}
    for name, examples in EXAMPLES.items():
        assert len(set(examples)) == 2 and all(f"pellucid {name} " in f"{line} " for line in examples)


def test_help_shows_the_examples(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for name, examples in EXAMPLES.items():
        help = " ".join(shell(*name.split(), "--help").out.split())
        assert all(line in help for line in examples), name
