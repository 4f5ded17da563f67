"""`chat` in a pipe and at a terminal: line editing, several lines, Ctrl-C, commands and exit codes."""

import json
import os
import re
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pellucid
from tests.cli.commands import Shell
from tests.cli.fork_server import fork_server
from tests.model import folders
from tests.model.test_model_chat import CHATML

OPTIONS = ("--max-new-tokens", "4", "--temperature", "1.5", "--top-p", "1", "--seed", "3")


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = folders.random_models.LLAMA | {"context_length": 20_000}
    return folders.ours(tmp_path_factory.mktemp("talker") / "tiny", shape, chat_template=CHATML)


# ---- in a pipe


def test_each_line_of_a_pipe_is_a_message_and_the_answers_alone_are_printed(
    shell: Shell, talker: Path
) -> None:
    model = pellucid.load(talker)
    first = model.chat("Who?", 4, 1.5, 3)
    talk = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": first}]
    second = model.chat([*talk, {"role": "user", "content": "a\nb"}], 4, 1.5, 3)
    done = shell("chat", talker, *OPTIONS, stdin=b"Who?\n\na\\\nb\n")
    assert (done.code, done.out) == (0, f"{first}\n{second}\n")


def test_commands_work_in_a_pipe_and_a_mistake_ends_it(shell: Shell, talker: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    lines = f"Who?\n/set temperature=0.5 seed=none\n/save {path}\n/undo\n/reset\n/hlep\nnever\n"
    done = shell("chat", talker, *OPTIONS, stdin=lines.encode())
    assert done.code == 2 and "/hlep is not a command. Did you mean '/help'?" in done.err
    data = json.loads(path.read_bytes())
    assert data["sampling"] == {"temperature": 0.5, "max_new_tokens": 4}
    assert data["messages"][0] == {"role": "user", "content": "Who?"}
    again = shell("chat", talker, "--load", path, "--temperature", 0, stdin=b"/set\n/quit\nnever\n")
    assert again.code == 0 and "temperature=0.0" in again.out and "Loaded 1 exchange" in again.err


def test_a_message_that_begins_with_a_slash_is_sent_with_two(shell: Shell, talker: Path) -> None:
    wanted = pellucid.load(talker).chat("/etc", 4, 1.5, 3)
    assert shell("chat", talker, *OPTIONS, stdin=b"//etc\n").out == f"{wanted}\n"


def test_what_cannot_be_is_refused(shell: Shell, talker: Path, tmp_path: Path) -> None:
    for options, stdin, words in (
        (["-n", "2"], b"", "n must be 1"),
        (["--load", tmp_path / "none.json"], b"", "none.json"),
        ([], b"x" * 30_000, "this message has"),
        ([], b"\xff\n", "not UTF-8"),
        ([], b"/why\n", "no answer"),
        ([], b"/set temprature=1\n", "Did you mean 'temperature'?"),
        ([], b"/reset now\n", "takes no argument"),
        ([], b"/save\n", "/save FILE"),
        ([], b"/explain x\n", "counted from 1"),
        ([], b"/undo\n", "no message"),
    ):
        done = shell("chat", talker, *options, stdin=stdin)
        assert (done.code, done.out) == (2, "") and words in done.err


def test_why_and_explain_show_how_a_token_was_chosen(shell: Shell, talker: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    lines = f"Who?\n/why\n/why 2\n/explain 2\n/explain 2 probs[t=3,v=4]\n/ledger {path}\n"
    done = shell("chat", talker, *OPTIONS, stdin=lines.encode())
    assert "sampling.probability = " in done.out and "Into the model: /explain 2 logits[t=" in done.err
    assert done.code == 0 and "seed         3" in done.out and "cumulative p" in done.out
    assert "softmax of the logits" in done.out
    assert f"pellucid replay {path}" in done.err and shell("replay", path).code == 0
    page = shell("chat", talker, *OPTIONS, stdin=f"Who?\n/ledger {tmp_path}/page.html\n".encode())
    assert "browser" in page.err and "replay" not in page.err


def test_a_model_without_a_template_is_said_to_have_none(shell: Shell, tmp_path: Path) -> None:
    plain = folders.ours(tmp_path / "plain")
    done = shell("chat", plain, *OPTIONS, stdin=b"Who?\n")
    assert done.code == 0 and "no chat template" in done.err


# ---- at a terminal


class Terminal:
    """A chat in a pseudo-terminal: what is typed goes in, and what is shown comes out."""

    def __init__(self, home: Path, *arguments: object) -> None:
        environment = {"PELLUCID_HOME": str(home), "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": ""}
        line = ["chat", *map(str, arguments)]
        self.process, self.file = fork_server().open_terminal(line, home, environment)
        self.shown, self.is_ended = "", False

    def wait(self, text: str, seconds: float = 60) -> str:
        """Returns what is shown up to a text."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"{text!r} is not in {self.shown!r}"
            try:
                self._read(0.2)
            except OSError:  # the other end is closed
                assert text in self.shown, self.shown
        before, _, self.shown = self.shown.partition(text)
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]|[\x01\x02\r]", "", before + text)

    def _read(self, seconds: float = 0) -> int:
        """Returns how many characters are shown and not waited for yet."""
        if select.select([self.file], [], [], seconds)[0]:
            self.shown += os.read(self.file, 65536).decode("utf-8", "replace")
        return len(self.shown)

    def type(self, text: str) -> None:
        """Types a text once the editor reads keys: it switches the terminal's own editing of lines off. That
        of the line before may not have ended yet, and would take the keys along: so two looks."""
        self._wait_until(lambda: self._reads_keys() and self._reads_keys())
        os.write(self.file, text.encode())

    def _reads_keys(self) -> bool:
        time.sleep(0.05)
        return not termios.tcgetattr(self.file)[3] & termios.ICANON

    def interrupt_answer(self) -> None:
        """Presses Ctrl-C after some of an answer was shown."""
        self._wait_until(lambda: self._read() > 100)
        os.write(self.file, b"\x03")

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < end, self.shown
            time.sleep(0.002)

    def end(self) -> int:
        """Returns the exit code."""
        self.is_ended = True
        return fork_server().wait()

    def close(self) -> None:
        os.close(self.file)
        if not self.is_ended:
            os.kill(self.process, signal.SIGKILL)
            self.end()


@pytest.fixture
def terminal(shell: Shell, talker: Path) -> Iterator[Callable[..., Terminal]]:
    opened = []

    def start(*options: object) -> Terminal:
        opened.append(Terminal(shell.home, talker, *options))
        opened[-1].wait("> ")
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_the_opening_says_how_quantized_weights_are_held(shell: Shell, talker: Path, tmp_path: Path) -> None:
    pellucid.quantize(talker).save(tmp_path / "small")
    chat = Terminal(shell.home, tmp_path / "small")
    shown = chat.wait("/help")
    chat.close()
    assert "weights: int8, " in shown and "bits a weight" in shown


def test_a_terminal_has_editing_pastes_and_a_history(
    terminal: Callable[..., Terminal], shell: Shell, tmp_path: Path
) -> None:
    chat = terminal(*OPTIONS)
    chat.type("Whp?\x1b[D\x7fo\r")  # the cursor goes left, and p becomes o
    shown = chat.wait("seed 3")
    assert "4 tokens" in shown and "of 20,000 tokens" in shown
    chat.wait("> ")
    chat.type("\x1b[200~two\nlines\x1b[201~\r")  # a paste
    chat.wait("seed 3")
    chat.wait("> ")
    chat.type("one\\\rtwo\r")
    chat.wait("seed 3")
    chat.wait("> ")
    chat.type("\x1b[A\x1b[A\x1b[A\r")  # three messages back
    chat.wait("seed 3")
    chat.wait("> ")
    path = tmp_path / "talk.json"
    chat.type(f"/sa\t{path}\r")  # completed
    chat.wait("Saved 4 exchanges")
    chat.wait("> ")
    chat.type("\x04")
    assert chat.end() == 0
    asked = [one["content"] for one in json.loads(path.read_bytes())["messages"][::2]]
    assert asked == ["Who?", "two\nlines", "one\ntwo", "Who?"]
    history = shell.home / "chat-history.jsonl"
    assert history.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert lines == ["Who?", "two\nlines", "one\\\ntwo", "Who?", f"/save {path}"]


def test_ctrl_c_stops_an_answer_and_keeps_it_and_twice_leaves(terminal: Callable[..., Terminal]) -> None:
    chat = terminal("--max-new-tokens", 19_000, "--min-new-tokens", 19_000, "--temperature", 1, "--seed", 1)
    chat.type("Who?\r")
    chat.wait("Who?")
    chat.interrupt_answer()
    chat.wait("stopped · ")
    chat.wait("seed 1")
    chat.wait("> ")
    chat.type("/undo\r")
    assert "Removed 'Who?' and its answer" in chat.wait("answer.")
    chat.wait("> ")
    chat.type("not sent\x03")
    chat.wait("Ctrl-C again")
    chat.wait("> ")
    chat.type("\x03")
    assert chat.end() == 0


def test_edit_offers_the_last_message_and_control_characters_are_shown_as_escapes(
    terminal: Callable[..., Terminal],
) -> None:
    chat = terminal(*OPTIONS)
    chat.type("Who?\r")
    chat.wait("seed 3")
    chat.wait("> ")
    chat.type("/edit\r")
    chat.wait("Who?")
    chat.type("\x7f!\r")
    chat.wait("seed 3")
    chat.wait("> ")
    chat.type("/undo\r")
    chat.wait("Removed 'Who!'")
    chat.type("/undo\r")
    chat.wait("no message that could be undone")
    chat.type("/system \x16\x1b]0;title\x16\x07\r/system\r")  # a text with control characters
    assert "\\x1b]0;title\\x07" in chat.wait("\\x07")
    chat.type("/quit\r")
    assert chat.end() == 0
