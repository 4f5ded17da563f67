"""Sixty hostile strings through every command and every name: nothing of them reaches a terminal raw."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.cli.terminal import print_warnings
from pellucid.formats import gguf
from pellucid.formats.resolve import open_model
from tests.cli import container
from tests.cli.container import TINY
from tests.cli.fork_server import Done
from tests.cli.hostile import STRINGS, TITLE, raw_characters
from tests.cli.random_lines import FITTING, WAITING, Line, commands
from tests.cli.test_random_commands import BROKEN
from tests.rotation import take_turn

Arguments = list[str]
WORKER = ["--workers", "1"]


def check(done: Done, terminal: bool, arguments: Arguments) -> None:
    line = Line(arguments, b"", terminal)
    assert not any(word in done.text for word in BROKEN) and not done.hung, f"{line}\n{done.text}"
    assert not raw_characters(done.out + done.err, terminal), f"{line}\n{done.text!r}"
    assert done.code in (0, 1, 2), f"{line}\n{done.text}"


def together(texts: list[str], most: int = 200) -> list[str]:
    """Returns the texts joined to as few as may be names of files."""
    names = [""]
    for text in texts:
        text = text.replace("/", "")
        if len(os.fsencode(names[-1] + text)) > most:
            names.append("")
        names[-1] += text
    return names


@pytest.fixture(scope="module")
def work() -> Path:
    return container.copy(container.scratch())


# ---- an option's or an argument's value

VALUES = {"vocab_size": "280", "workers": "1", "output": "new"}


def every_parameter() -> list[tuple[str, str]]:
    return [(name, parameter.name) for name, parameters in commands().items() for parameter in parameters]


def with_value(name: str, hostile: str, value: str) -> Arguments:
    """Returns a command line that fits, but for one value."""
    arguments = name.split()
    for parameter in commands()[name]:
        given = value if parameter.name == hostile else FITTING.get(parameter.name, ["1"])[0]
        if parameter.param_type_name == "argument":
            if parameter.required or parameter.name == hostile:
                arguments.append(given)
        elif parameter.name == hostile or parameter.required:
            flag = getattr(parameter, "is_flag", False)
            arguments += [f"{parameter.opts[0]}={given}"] if flag else [parameter.opts[0], given]
    return arguments


def check_values(work: Path, texts: list[tuple[int, str]], parameters: list[tuple[str, str]]) -> None:
    for name, hostile in parameters:
        for number, text in texts:
            arguments = with_value(name, hostile, text)
            if arguments[0] == "train" and text.startswith("-"):
                continue
            exact = (name, hostile) == ("generate", "prompts")  # in a pipe its output is the text itself
            terminal = exact or ((number + len(hostile)) % 2 == 0 and name not in WAITING)
            check(container.run(arguments, work, terminal=terminal), terminal, arguments)


def test_a_hostile_value_of_any_parameter_is_shown_escaped(work: Path) -> None:
    """Half of the strings in every second parameter, other ones each day; all in four days."""
    half = len(STRINGS) // 2
    texts = [(0, " ".join(STRINGS[:half])), (1, " ".join(STRINGS[half:]))]
    for text, first in take_turn([(text, first) for text in texts for first in (0, 1)]):
        check_values(work, [text], every_parameter()[first::2])


@pytest.mark.torture
@pytest.mark.parametrize("text", STRINGS)
def test_each_hostile_value_of_any_parameter_is_shown_escaped(work: Path, text: str) -> None:
    check_values(work, [(0, text), (1, text)], every_parameter())


# ---- a path


def in_folder(folder: str) -> list[Arguments]:
    """Returns command lines that read and write in a folder which holds one of everything."""

    def at(name: str) -> str:
        return os.path.join(folder, name)

    return [
        ["inspect", at("ours")],
        ["generate", at("ours"), "the", "--max-new-tokens", "2"],
        ["generate", at("nothing"), "the"],
        ["explain", at("ours"), "the cat", "--at", "logits"],
        ["explain", at("run"), "--at", "loss@1"],
        ["explain", at("small.json"), "--at", "probs"],
        ["trace", at("ours"), "the cat", "-o", at("new.json")],
        ["trace", at("ours"), "the cat", "-o", at("thesis.tex")],
        ["replay", at("small.json")],
        ["replay", at("thesis.tex")],
        ["runs", folder],
        ["runs", at("ours")],
        ["runs", at("nowhere")],
        ["plot", at("run")],
        ["plot", at("run"), "-o", at("new.svg")],
        ["plot", at("thesis.tex")],
        ["verify", at("words.toml"), "--quick"],
        ["compare", at("small.json"), at("arrays.npz")],
        ["compare", at("ours"), at("hf"), "the"],
        ["export", at("ours"), "--to", "hf", "-o", at("new")],
        ["export", at("ours"), "--to", "hf", "--force", "-o", at("mixed")],
        ["export", at("ours"), "--to", "gguf", "-o", at("new")],
        ["import", at("pickled"), "-o", at("new2")],
        ["tokenizer", "train", at("plain.txt"), "--vocab-size", "280", "-o", at("new3")],
        ["tokenizer", "train", at("plain.txt"), "-o", at("ours")],
        ["tokenizer", "encode", at("tokenizer"), "the"],
        ["tokenizer", "decode", at("nowhere"), "1"],
        ["tokenizer", "explain", at("thesis.tex"), "the"],
        ["data", "prepare", at("plain.txt"), "--tokenizer", at("tokenizer"), "-o", at("new4"), *WORKER],
        ["data", "prepare", folder, "--tokenizer", at("tokenizer"), "-o", at("mixed"), *WORKER],
        ["data", "show", at("tokens")],
        ["data", "show", at("thesis.tex")],
        ["train", at("plain.txt"), f"out={at('new5')}", *TINY],
        ["train", at("latin1.txt"), f"out={at('new6')}", *TINY],
        ["train", at("plain.txt"), f"out={at('mixed')}", *TINY],
        ["train", "--resume", at("run")],
        ["train", "--resume", at("mixed")],
    ]  # fmt: skip


def check_paths(names: list[str]) -> None:
    work = container.copy(container.scratch())
    folder = work.parent
    for name in names:
        folder = folder / name
        folder.mkdir()
    work.rename(folder / "w")
    for number, arguments in enumerate(in_folder(os.path.relpath(folder / "w", work.parent))):
        terminal = number % 2 == 0
        check(container.run(arguments, work.parent, terminal=terminal), terminal, arguments)
    container.remove(work.parent)


def test_a_hostile_path_is_shown_escaped() -> None:
    """In a tenth of a minute, a training or two among the lines."""
    check_paths(together(STRINGS))


@pytest.mark.torture
@pytest.mark.parametrize("text", STRINGS)
def test_each_hostile_path_is_shown_escaped(text: str) -> None:
    check_paths(["name" + text.replace("/", "")])


# ---- what is in a file


@dataclass(frozen=True)
class Site:
    """A place inside a file that may hold a hostile text, and command lines that show it."""

    write: Callable[[Path, list[str]], None]
    lines: list[Arguments]


def words_model(work: Path, texts: list[str]) -> None:
    """Token texts; a word has no blank, and control characters that are blanks to Python are none."""
    words = [word for text in texts if [word := text.encode("utf-8", "replace").decode()] == text.split()]
    table = (work / "words.toml").read_text()
    config = table[table.index("[config]") : table.index("[weights]")].replace("= 4", f"= {len(words) + 1}")
    rows = [[1, i % 3] for i in range(len(words) + 1)]
    weights = table[table.index('"blocks.0.attn.q_proj') : table.index('"unembed')]
    quoted = json.dumps(["A", *words])  # which is TOML, too, but for what lies beyond \uffff
    text = f"words = {toml_list(['A', *words])}\n{config}[weights]\n" if quoted else ""
    text += f'"embed.weight" = {rows}\n{weights}"unembed.weight" = {rows}\n'
    (work / "hostile.toml").write_text(text)


def toml_list(texts: list[str]) -> str:
    return (
        "[" + ", ".join('"' + "".join(f"\\U{ord(char):08x}" for char in text) + '"' for text in texts) + "]"
    )


def trace(work: Path, texts: list[str]) -> None:
    """Tokens, labels and notes of a trace."""
    hostile = " ".join(texts).encode("utf-8", "replace").decode()

    def changed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: changed(inner, name) for name, inner in value.items()}
        if isinstance(value, list) and value and all(isinstance(inner, str) for inner in value):
            labels = key in ("tokens", "words", "labels", "vocabulary", "v", "t", "s")
            return [inner + hostile for inner in value] if labels else value
        return [changed(inner, key) for inner in value] if isinstance(value, list) else value

    data = changed(json.loads((work / "small.json").read_text()))
    data.setdefault("run", {})["model"] = hostile
    (work / "hostile.json").write_text(json.dumps(data))


def gguf_name(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts).encode("utf-8", "replace").decode()
    model = replace(open_model(work / "tiny.gguf"), name=hostile, chat_template=hostile)
    gguf.write(work / "hostile.gguf", model, "F16")


def config_values(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts)
    for number, (key, value) in enumerate(
        {"model_type": hostile, "hidden_act": hostile, hostile: 1, "rope_scaling": {hostile: 1}}.items()
    ):
        folder = work / f"config-{number}"
        shutil.copytree(work / "hf", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {key: value}))


def tokenizer_files(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts)
    for number, (key, value) in enumerate(
        {"version": hostile, "model": {"type": hostile}, hostile: {}, "normalizer": {"type": hostile}}.items()
    ):
        folder = work / f"tokenizer-{number}"
        shutil.copytree(work / "tokenizer", folder)
        table = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(table | {key: value}))
    folder = work / "tokenizer-4"
    shutil.copytree(work / "tokenizer", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": hostile, "tokenizer_class": hostile})
    )


def arrays(work: Path, texts: list[str]) -> None:
    names = [text.replace("/", "").encode("utf-8", "replace").decode() for text in texts]
    np.savez(work / "hostile.npz", **{name or "x": np.zeros(2) for name in names})
    rules = "".join(
        f"{toml_list([name])[1:-1]} = {toml_list([name])[1:-1]}\n" for name in dict.fromkeys(names)
    )
    (work / "hostile-names.toml").write_text(rules)


def recipes(work: Path, texts: list[str]) -> None:
    hostile = toml_list([" ".join(texts).encode("utf-8", "replace").decode()])[1:-1]
    for number, line in enumerate(
        [
            f"{hostile} = 1",
            f"start = {hostile}",
            f"[optimizer]\nkind = {hostile}",
            f"[model]\n{hostile} = 1",
            hostile,
        ]
    ):
        text = (work / "recipe.toml").read_text().replace("[data]", f"{line}\n[data]", 1)
        (work / f"recipe-{number}.toml").write_text(text)


def run_log(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts)
    shutil.copytree(work / "run", work / "logged", symlinks=True)
    log = (work / "run" / "log.jsonl").read_text().splitlines()
    lines = [
        json.dumps(json.loads(line) | {"why": hostile, hostile: hostile, "text": hostile}) for line in log
    ]
    (work / "logged" / "log.jsonl").write_text(
        "\n".join([*lines, json.dumps({"kind": hostile, "step": 9})]) + "\n"
    )
    shutil.copytree(work / "run", work / "broken", symlinks=True)
    (work / "broken" / "log.jsonl").write_text(json.dumps({"kind": "step", "step": hostile}) + "\n")
    (work / "broken" / "recipe.toml").write_text(
        f"steps = {toml_list([hostile.encode('utf-8', 'replace').decode()])}"
    )


def chats(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts)
    lines = [
        {"messages": [{"role": hostile, "content": "hi"}]},
        {hostile: 1},
        {"messages": [{"role": "user", "content": hostile}, {"role": "assistant", "content": hostile}]},
    ]
    for number, line in enumerate(lines):
        (work / f"chats-{number}.jsonl").write_text(json.dumps(line) + "\n")
    plain = hostile.encode("utf-8", "replace").decode() + "\n"
    (work / "hostile.txt").write_text(plain * 20)


def adapter(work: Path, texts: list[str]) -> None:
    hostile = " ".join(texts)
    shutil.copytree(work / "lora" / "adapter", work / "adapter")
    config = json.loads((work / "adapter" / "adapter_config.json").read_text())
    changes = {"target_modules": [hostile], "peft_type": hostile, "base_model_name_or_path": hostile}
    for number, (key, value) in enumerate(changes.items()):
        shutil.copytree(work / "adapter", work / f"adapter-{number}")
        path = work / f"adapter-{number}" / "adapter_config.json"
        path.write_text(json.dumps(config | {key: value}))


def library(work: Path, texts: list[str]) -> None:
    for name in together(texts, 60):
        shutil.copy(work / "tiny.gguf", work / "home" / "models" / f"n{name}.gguf")
        shutil.copytree(work / "hf", work / "home" / "models" / f"m{name}")
        (work / "home" / "models" / f"m{name}" / "config.json").write_text("{")


def tensors(work: Path, texts: list[str]) -> None:
    """Names of tensors, and the notes in a file of safetensors."""
    from safetensors.numpy import load_file, save_file

    hostile = " ".join(texts).encode("utf-8", "replace").decode()
    shutil.copytree(work / "hf", work / "tensors")
    path = work / "tensors" / "model.safetensors"
    save_file(
        load_file(path) | {hostile: np.zeros(2, np.float32)}, path, {"format": hostile, hostile: hostile}
    )


SITES = {
    "words": Site(words_model, [
        ["explain", "hostile.toml", "A", "--at", "probs"],
        ["explain", "hostile.toml", "A A", "--at", "probs[t=1,v=2]", "--depth", "6", "--lines", "0"],
        ["explain", "hostile.toml", "B", "--at", "loss"],
        ["explain", "hostile.toml", "A", "--json"],
        ["inspect", "hostile.toml"],
        ["inspect", "hostile.toml", "--probe", "--text", "A A A"],
        ["generate", "hostile.toml", "A", "--json"],
        ["tokenizer", "explain", "hostile.toml", "A"],
        ["compare", "hostile.toml", "abcd", "A"],
        ["export", "hostile.toml", "--to", "pellucid", "-o", "new-words"],
    ]),
    "trace": Site(trace, [
        ["explain", "hostile.json", "--at", "probs"],
        ["explain", "hostile.json", "--at", "probs[t=1,v=2]"],
        ["explain", "hostile.json"],
        ["explain", "hostile.json", "--at", "probs[9,9]"],
        ["explain", "hostile.json", "--at", "nothing"],
        ["replay", "hostile.json"],
        ["compare", "hostile.json", "small.json"],
        ["compare", "hostile.json", "trace.json"],
    ]),
    "gguf": Site(gguf_name, [
        ["inspect", "hostile.gguf"],
        ["inspect", "hostile.gguf", "--json"],
        ["explain", "hostile.gguf", "the", "--at", "logits"],
        ["export", "hostile.gguf", "--to", "hf", "-o", "new-gguf"],
        ["verify", "hostile.gguf", "--quick"],
    ]),
    "config": Site(config_values, [["inspect", f"config-{i}"] for i in range(4)] + [["list"]]),
    "tokenizer": Site(tokenizer_files, [["tokenizer", "encode", f"tokenizer-{i}", "the"] for i in range(5)]),
    "arrays": Site(arrays, [
        ["compare", "small.json", "hostile.npz"],
        ["compare", "small.json", "hostile.npz", "--names", "hostile-names.toml"],
        ["compare", "small.json", "arrays.npz", "--names", "hostile-names.toml"],
        ["compare", "hostile.npz", "arrays.npz"],
        ["compare", "hostile.npz", "hostile.npz"],
    ]),
    "recipe": Site(recipes, [["train", f"recipe-{i}.toml", "out=never"] for i in range(5)]),
    "log": Site(run_log, [
        ["runs", "."],
        ["runs", ".", "--json"],
        ["plot", "logged"],
        ["plot", "broken"],
        ["plot", "logged", "run", "-o", "new-log.html"],
        ["train", "--resume", "logged"],
        ["train", "--resume", "broken"],
        ["explain", "logged", "--at", "loss@1"],
    ]),
    "text": Site(chats, [
        *(["train", f"chats-{i}.jsonl", "out=never", *TINY] for i in range(3)),
        ["train", "hostile.txt", "out=new-text", *TINY],
        ["train", "hostile.txt", "out=new-text2", "--plain", *TINY],
        ["data", "prepare", "hostile.txt", "--tokenizer", "tokenizer", "--workers", "1", "-o", "new-tokens"],
        ["data", "show", "new-tokens"],
        ["tokenizer", "train", "hostile.txt", "--vocab-size", "300", "-o", "new-tokenizer"],
        ["tokenizer", "train", "chats-1.jsonl", "-o", "new-tokenizer2"],
    ]),
    "adapter": Site(adapter, [
        ["export", "ours", "--to", "hf", "-o", f"new-{i}", "--adapter", f"adapter-{i}"] for i in range(3)
    ]),
    "library": Site(library, [
        ["list"],
        ["list", "--json"],
        ["get", f"hf:org/{TITLE}"],
        ["inspect", f"hf:org/{TITLE}"],
    ]),
    "tensors": Site(tensors, [
        ["inspect", "tensors"],
        ["generate", "tensors", "the"],
        ["compare", "tensors/model.safetensors", "arrays.npz"],
    ]),
}  # fmt: skip


def check_site(name: str, texts: list[str]) -> None:
    work = container.copy(container.scratch())
    SITES[name].write(work, texts)
    for number, arguments in enumerate(SITES[name].lines):
        for terminal in (True, False) if arguments[0] not in ("train", "verify") else (number % 2 == 0,):
            check(container.run(arguments, work, terminal=terminal), terminal, arguments)
    container.remove(work.parent)


@pytest.mark.parametrize("name", SITES)
def test_hostile_text_in_a_file_is_shown_escaped(name: str) -> None:
    check_site(name, STRINGS)


@pytest.mark.torture
@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("text", STRINGS)
def test_each_hostile_text_in_a_file_is_shown_escaped(name: str, text: str) -> None:
    check_site(name, [text])


# ---- text that a model writes: exact where a program reads it, escaped where a person does


def test_a_model_s_own_text_is_exact_in_a_pipe_and_escaped_on_a_terminal(work: Path) -> None:
    words_model(work, STRINGS)
    model = open_model(work / "hostile.toml")
    ids = range(model.tokenizer.vocab_size)
    text = model.tokenizer.decode(list(ids))
    arguments = ["tokenizer", "decode", "hostile.toml", *map(str, ids)]
    assert container.run(arguments, work).out.decode() == text + "\n"
    for line in (arguments, ["generate", "hostile.toml", "A", "--temperature", "9", "--seed", "1"]):
        exact, shown = container.run(line, work), container.run(line, work, terminal=True)
        assert exact.code == shown.code == 0, exact.text + shown.text
        assert raw_characters(exact.out, False) and not raw_characters(exact.err, False)
        assert not raw_characters(shown.out, True), shown.text


# ---- what Python shows


def test_repr_of_what_came_from_a_file_is_escaped(tmp_path: Path) -> None:
    import pellucid
    from pellucid.base.errors import FileError

    work = container.copy(container.scratch())
    for write in (words_model, gguf_name, trace):
        write(work, STRINGS)
    hostile = "".join(STRINGS)
    model = pellucid.load(str(work / "hostile.toml"))
    of_gguf = pellucid.load(str(work / "hostile.gguf"))
    from pellucid.explanation.tracing import read_trace
    from pellucid.training.saving.run_folder import RunFolder

    traced = model.trace("A A")
    shown: dict[str, object] = {
        "Model": model,
        "Model of a GGUF file": of_gguf,
        "Trace": traced,
        "Trace of a file": read_trace(work / "hostile.json"),
        "Derivation": model.explain("A A", at="probs[t=1,v=2]"),
        "Weights": of_gguf.pretrained.weights,
        "Pretrained": of_gguf.pretrained,
        "ModelConfig": model.config,
        "Score": model.score("A A"),
        "RunFolder": RunFolder(work / hostile.replace("/", "")),
    }
    with pellucid.record() as recording:
        model.logits([0])
    shown["Recording"] = recording
    for name, value in shown.items():
        for text in (repr(value), str(value)):
            raw = raw_characters(text.encode("utf-8", "surrogateescape"), terminal=False)
            assert not raw and len(text) < 10_000, (name, raw, text[:200])
    with pytest.raises(FileError):
        pellucid.load(hostile)
    container.remove(work.parent)


def test_a_warning_of_ours_is_one_line_each_time_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with print_warnings(FutureWarning):
        for _ in range(2):
            warnings.warn("it runs code.", FutureWarning, stacklevel=1)
    assert capsys.readouterr().err == 2 * "pellucid: warning: it runs code.\n"
