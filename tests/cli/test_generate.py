"""`generate`: the text comes token by token, and what cannot be is refused before anything is written."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.cli.generate import MOST_INPUT
from pellucid.workbench import Model
from tests.cli.commands import Done, Shell
from tests.interop.gguf import random_models
from tests.workbench import folders

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.ours(tmp_path_factory.mktemp("ours") / "tiny", generation={})


@pytest.fixture(scope="module")
def mute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.ours(tmp_path_factory.mktemp("mute") / "tiny", generation={}, tokenizer=None)


def test_the_prompt_and_what_follows_it_are_printed(shell: Shell, folder: Path) -> None:
    done = shell("generate", folder, "the cat", "--max-new-tokens", 9)
    assert done.code == 0 and done.err == ""
    assert done.out == "the cat" + pellucid.load(folder).generate("the cat", 9) + "\n"


def test_each_piece_is_written_when_it_comes(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two tokens, what has been said so far is already out."""
    ids, written = pellucid.load(folder).encode("abcd"), []

    def tokens(*given: Any, **more: Any) -> Iterator[int]:
        for id in ids:
            written.append(sys.stdout.getvalue())  # type: ignore[attr-defined]
            yield id

    monkeypatch.setattr(Model, "generate_ids", tokens)
    assert shell("generate", folder, ">").out == ">abcd\n"
    assert written == ["", ">a", ">ab", ">abc"]


def test_a_seed_repeats_the_text_and_another_gives_another(shell: Shell, folder: Path) -> None:
    one, same, other = (
        shell("generate", folder, "the", "--temperature", 2, "--seed", seed).out for seed in (1, 1, 2)
    )
    assert one == same != other


def test_json_is_one_line_with_text_ids_and_the_reason_for_the_end(shell: Shell, folder: Path) -> None:
    done = shell("generate", folder, "the", "--max-new-tokens", 5, "--json")
    (line,) = done.out.splitlines()
    data = json.loads(line)
    model = pellucid.load(folder)
    assert data["prompt"] == "the"
    assert data["text"] == model.generate("the", 5)
    assert data["ids"] == model.generate(model.encode("the"), 5)
    assert data["finish"] == "length" and data["tokens_per_second"] > 0


def test_json_tells_when_the_model_itself_came_to_an_end(shell: Shell, tmp_path: Path) -> None:
    plain = Model(random_models.model(random_models.LLAMA, generation={}))
    second = plain.generate(plain.encode("the"), 2)[1]
    ends = folders.ours(tmp_path / "ends", generation={"eos_token_id": second})
    data = json.loads(shell("generate", ends, "the", "--json").out)
    assert data["finish"] == "stop" and len(data["ids"]) == 2 and data["ids"][-1] == second


def test_a_minus_reads_standard_input(shell: Shell, folder: Path) -> None:
    typed = shell("generate", folder, "-", "--max-new-tokens", 4, stdin="naïve".encode())
    assert typed == shell("generate", folder, "naïve", "--max-new-tokens", 4)
    done = shell("generate", folder, "-", stdin=b"ab\xff")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("pellucid: standard input is not UTF-8: byte 2 is 0xff")


def test_no_new_tokens_print_the_prompt_alone(shell: Shell, folder: Path) -> None:
    assert shell("generate", folder, "the", "--max-new-tokens", 0).out == "the\n"
    data = json.loads(shell("generate", folder, "the", "--max-new-tokens", 0, "--json").out)
    assert (data["text"], data["ids"], data["tokens_per_second"]) == ("", [], None)


def test_an_empty_prompt_is_refused_unless_the_model_begins_with_a_token_of_its_own(
    shell: Shell, folder: Path, tmp_path: Path
) -> None:
    done = shell("generate", folder, "")
    assert (done.code, done.out) == (2, "")
    assert done.err == "pellucid: the prompt is empty; give at least one token.\n"
    begins = folders.ours(tmp_path / "bos", add_bos=True)
    assert shell("generate", begins, "", "--max-new-tokens", 3).code == 0


def test_the_text_ends_where_the_context_does(shell: Shell, folder: Path) -> None:
    context = pellucid.load(folder).config.context_length
    done = shell("generate", folder, "a" * (context - 3), "--max-new-tokens", 100, "--json")
    data = json.loads(done.out)
    assert len(data["ids"]) == 3 and data["finish"] == "context"
    done = shell("generate", folder, "a" * (context + 1))
    assert (done.code, done.out) == (2, "")
    assert f"{context + 1} tokens do not fit this model's context of {context}" in done.err


def test_a_text_that_fills_the_context_says_so_and_can_go_on(shell: Shell, folder: Path) -> None:
    asked = ("generate", folder, "the", "--max-new-tokens", 100)
    done = shell(*asked)
    assert "context length of 64 tokens" in done.err and "--past-context" in done.err
    assert done.out.rstrip("\n").startswith("the")
    on = shell(*asked, "--past-context")
    assert on.err == "" and on.out.startswith(done.out.rstrip("\n")) and len(on.out) > len(done.out)
    data = json.loads(shell(*asked, "--past-context", "--json").out)
    assert len(data["ids"]) == 100 and data["finish"] == "length"
    assert shell("generate", folder, "a" * 100, "--past-context", "--max-new-tokens", 2).code == 0


CHATML = (
    "{% for m in messages %}<|begin|>{{ m.role }}\n{{ m.content }}<|turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.ours(tmp_path_factory.mktemp("talker") / "tiny", chat_template=CHATML)


def test_chat_asks_by_the_template_and_prints_the_answer_alone(shell: Shell, talker: Path) -> None:
    model, question = pellucid.load(talker), "a<|turn|>b"
    asked = [{"role": "system", "content": "Be."}, {"role": "user", "content": question}]
    done = shell("generate", talker, question, "--chat", "--system", "Be.", "--max-new-tokens", 5)
    assert done == Done(0, model.chat(asked, 5) + "\n", "")
    data = json.loads(shell("generate", talker, question, "--chat", "--max-new-tokens", 5, "--json").out)
    assert data["prompt"] == question and data["text"] == model.chat(question, 5)


def test_an_answer_ends_with_the_turn_which_is_not_printed(
    shell: Shell, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = pellucid.load(talker), {}
    turn = model.tokenizer.id_of("<|turn|>")

    def tokens(self: Model, ids: list[int], *given: Any, **more: Any) -> Iterator[int]:
        seen.update(ids=ids, **more)
        yield from [*self.encode("23"), turn]

    monkeypatch.setattr(Model, "generate_ids", tokens)
    done = shell("generate", talker, "22+1?", "--chat")
    assert (done.code, done.out) == (0, "23\n")
    wanted = "<|begin|>user\n22+1?<|turn|>\n<|begin|>assistant\n"
    assert seen["ids"] == model.encode(wanted, parse_special=True) and turn in seen["stop"]
    assert json.loads(shell("generate", talker, "22+1?", "--chat", "--json").out)["finish"] == "stop"


def test_chat_options_that_do_not_go_together_are_refused(shell: Shell, folder: Path, talker: Path) -> None:
    for model, options, words in (
        (folder, ["--chat"], "has no chat template"),
        (folder, ["--system", "x"], "give --chat as well"),
        (talker, ["--chat", "--parse-special"], "omit --parse-special"),
    ):
        done = shell("generate", model, "the", *options)
        assert (done.code, done.out) == (2, "") and words in done.err


def test_a_pipe_gets_the_exact_text_and_a_terminal_visible_escapes(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "a\x1b]0;b\x07\u202e\x08"
    ids = pellucid.load(folder).encode(evil)
    monkeypatch.setattr(Model, "generate_ids", lambda *given, **more: iter(ids))
    assert shell("generate", folder, ">").out == f">{evil}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shell("generate", folder, ">").out == ">a\\x1b]0;b\\x07\\u202e\\x08\n"


def test_an_empty_or_endless_standard_input_is_refused(shell: Shell, folder: Path) -> None:
    """A closed one is opened on the null device, and so is empty."""
    done = shell("generate", folder, "-", stdin=b"")
    assert done.code == 2 and "the prompt is empty" in done.err
    done = shell("generate", folder, "-", stdin=b"a" * (MOST_INPUT + 1))
    assert done.code == 2 and "longer than any context" in done.err


def test_a_model_without_a_tokenizer_goes_on_with_ids(shell: Shell, mute: Path) -> None:
    done = shell("generate", mute, "the cat")
    assert (done.code, done.out) == (2, "")
    assert "came without a tokenizer: give token ids, [1, 2, 3], instead of text." in done.err
    wanted = pellucid.load(mute).generate([1, 2, 3], 4)
    done = shell("generate", mute, "[1, 2, 3]", "--max-new-tokens", 4)
    assert done.out == f"[1, 2, 3] {' '.join(map(str, wanted))}\n"
    assert (
        json.loads(shell("generate", mute, "[1,2,3]", "--max-new-tokens", 4, "--json").out)["ids"] == wanted
    )
    assert "ids go from 0 to 271; got 272 to 272" in shell("generate", mute, "[272]").err
    assert "the prompt is empty" in shell("generate", mute, "[]").err
    assert "an id is beyond every vocabulary" in shell("generate", mute, f"[{'9' * 5000}]").err
    assert shell("generate", mute, f"[{'0' * 5000}1]").code == 0


def test_special_tokens_and_the_cache_s_type_are_options(shell: Shell, folder: Path) -> None:
    model, prompt = pellucid.load(folder), "the<|end|>cat"
    done = shell("generate", folder, prompt, "--parse-special", "--cache", "int8", "--max-new-tokens", 6)
    assert done.code == 0
    assert done.out == prompt + model.generate(prompt, 6, cache="int8", parse_special=True) + "\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "-1"], "--temperature"),
        (["--temperature", "nan"], "temperature must be a finite number ≥ 0, not nan"),
        (["--temperature", "inf"], "--temperature"),
        (["--temperature", "warm"], "--temperature"),
        (["--max-new-tokens", "-1"], "--max-new-tokens"),
        (["--dtype", "float8"], "dtype must be one of"),
        (["--device", "toaster"], "the device 'toaster' cannot be used here"),
        (["--seed", "x"], "--seed"),
        (["--seed", "9" * 30], "--seed"),
        (["--cache", "int4"], "'int8'"),
    ],
)
def test_a_wrong_request_is_refused(shell: Shell, folder: Path, options: list[str], words: str) -> None:
    done = shell("generate", folder, "the", *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt2", "gpt2 is a config-only preset"),
        ("abdc", "'abdc' is not a model"),
        ("no/such/folder", "no/such/folder is not a model: there is no such file or folder"),
    ],
)
def test_a_model_that_is_not_there_is_reported_in_one_line(shell: Shell, model: str, words: str) -> None:
    done = shell("generate", model, "the")
    assert (done.code, done.out) == (2, "")
    assert words in done.err and done.err.count("\n") == 1


def test_ctrl_c_keeps_what_was_written_and_exits_with_130(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = pellucid.load(folder).encode("abcd")

    def tokens(*given: Any, **more: Any) -> Iterator[int]:
        yield from ids
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "generate_ids", tokens)
    done = shell("generate", folder, ">")
    assert dataclasses.astuple(done) == (130, ">abcd\n", "interrupted\n")


def test_a_real_interrupt_ends_a_real_process(tmp_path: Path) -> None:
    """A context so long that it is still writing when the signal comes."""
    shape = random_models.LLAMA | {"context_length": 50_000, "n_layer": 1}
    endless = str(folders.ours(tmp_path / "endless", shape, generation={}))
    command = [sys.executable, "-m", "pellucid.cli", "generate", endless, "the", "--max-new-tokens", "50000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert running.stdout
    start = running.stdout.read(5)
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, message = running.communicate(timeout=20)
    assert running.returncode == 130
    assert start.startswith(b"the") and out.endswith(b"\n") and len(out) > 1
    assert message == b"interrupted\n"
