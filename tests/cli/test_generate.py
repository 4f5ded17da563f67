"""`generate`: the text comes token by token, and what cannot be is refused before anything is written."""

import dataclasses
import json
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from torch import Tensor

import pellucid
from pellucid.cli.generate import MOST_INPUT
from pellucid.generation import scheduler
from pellucid.generation.handle import Handle
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.request import Completion, Token
from pellucid.generation.samplers.chain import ChainState, Chosen
from pellucid.model import Model
from tests.cli.commands import Done, Shell
from tests.cli.fork_server import fork_server
from tests.formats.gguf import random_models
from tests.model import folders

ROOT = Path(__file__).parent.parent.parent


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


@pytest.mark.parametrize("weights", ["int8", "int4", "file"])
def test_weights_are_held_as_asked(shell: Shell, folder: Path, weights: str) -> None:
    done = shell("generate", folder, "the cat", "--max-new-tokens", 9, "--weights", weights)
    assert done.code == 0
    assert done.out == "the cat" + pellucid.load(folder, weights=weights).generate("the cat", 9) + "\n"


def test_each_piece_is_written_when_it_comes(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two tokens, what has been said so far is already out."""
    written = []

    def tokens(handle: Handle) -> Iterator[Token]:
        for letter in "abcd":
            written.append(sys.stdout.getvalue())  # type: ignore[attr-defined]
            yield Token(0, 0, letter)

    monkeypatch.setattr(Handle, "__iter__", tokens)
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


def test_an_empty_prompt_starts_from_the_token_that_a_text_begins_with(shell: Shell, folder: Path) -> None:
    model = pellucid.load(folder)
    wanted = model.generate("", 3)
    assert shell("generate", folder, "", "--max-new-tokens", 3) == Done(0, f"{wanted}\n", "")
    done = shell("generate", "abcd", "")
    assert (done.code, done.out) == (2, "") and "the prompt is empty" in done.err


def test_what_does_not_fit_the_context_is_refused_with_what_would(shell: Shell, folder: Path) -> None:
    context = pellucid.load(folder).config.context_length
    done = shell("generate", folder, "a" * (context - 3), "--max-new-tokens", 100)
    assert (done.code, done.out) == (2, "") and "at most 3 new tokens" in done.err
    data = json.loads(shell("generate", folder, "a" * (context - 3), "--json").out)
    assert len(data["ids"]) == 3 and data["finish"] == "length"
    done = shell("generate", folder, "a" * (context + 1))
    assert (done.code, done.out) == (2, "")
    assert f"{context + 1} tokens of the prompt do not fit the context of {context}" in done.err


def test_a_text_can_go_on_beyond_the_context(shell: Shell, folder: Path) -> None:
    asked = ("generate", folder, "the", "--max-new-tokens", 100)
    on = shell(*asked, "--context", "crop")
    assert (
        on.err == "" and on.out == "the" + pellucid.load(folder).generate("the", 100, context="crop") + "\n"
    )
    assert shell("generate", folder, "a" * 100, "--context", "crop", "--max-new-tokens", 2).code == 0


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
    model = pellucid.load(talker)
    turn = model.tokenizer.id_of("<|turn|>")
    assert turn is not None
    ids = [*model.encode("23"), turn]

    def choose(logits: Tensor, states: list[ChainState], **_: object) -> list[Chosen]:
        return [Chosen(ids[len(state.new)]) for state in states]

    monkeypatch.setattr(scheduler, "choose", choose)
    assert shell("generate", talker, "22+1?", "--chat") == Done(0, "23\n", "")
    data = json.loads(shell("generate", talker, "22+1?", "--chat", "--json").out)
    assert data["finish"] == "stop" and data["ids"] == ids


def test_a_pipe_gets_the_exact_text_and_a_terminal_visible_escapes(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "a\x1b]0;b\x07\u202e\x08"
    monkeypatch.setattr(Handle, "__iter__", lambda _: iter([Token(0, 0, letter) for letter in evil]))
    assert shell("generate", folder, ">").out == f">{evil}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shell("generate", folder, ">").out == ">a\\x1b]0;b\\x07\\u202e\\x08\n"


def test_an_endless_standard_input_is_refused_and_an_empty_one_is_an_empty_prompt(
    shell: Shell, folder: Path
) -> None:
    """A closed one is opened on the null device, and so is empty."""
    assert shell("generate", folder, "-", stdin=b"") == shell("generate", folder, "")
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
    assert "prompt: ids go from 0 to 271; got 272." in shell("generate", mute, "[272]").err
    assert "the prompt is empty" in shell("generate", mute, "[]").err
    assert "an id is beyond every vocabulary" in shell("generate", mute, f"[{'9' * 5000}]").err
    assert shell("generate", mute, f"[{'0' * 5000}1]").code == 0


def test_special_tokens_and_the_cache_s_type_are_options(shell: Shell, folder: Path) -> None:
    model, prompt = pellucid.load(folder), "the<|end|>cat"
    done = shell("generate", folder, prompt, "--parse-special", "--cache", "int8", "--max-new-tokens", 6)
    assert done.code == 0
    assert done.out == prompt + model.generate(prompt, 6, cache="int8", parse_special=True) + "\n"


def test_ctrl_c_keeps_what_was_written_and_exits_with_130(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens(handle: Handle) -> Iterator[Token]:
        yield from (Token(0, 0, letter) for letter in "abcd")
        raise KeyboardInterrupt

    monkeypatch.setattr(Handle, "__iter__", tokens)
    done = shell("generate", folder, ">")
    assert dataclasses.astuple(done) == (130, ">abcd\n", "interrupted\n")


def test_ctrl_c_keeps_the_ledger_of_what_was_written(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterate = Handle.__iter__

    def tokens(handle: Handle) -> Iterator[Token]:
        yield from islice(iterate(handle), 3)
        monkeypatch.setattr(Handle, "__iter__", iterate)
        raise KeyboardInterrupt

    monkeypatch.setattr(Handle, "__iter__", tokens)
    done = shell("generate", "abcd", "A", "--ledger-file", tmp_path / "ledger.json")
    assert (done.code, done.out) == (130, "A A A A\n")
    (completion,) = Ledger.read(tmp_path / "ledger.json").completions
    assert completion.finish == "cancelled" and len(completion.entries) == 3


def test_a_real_interrupt_ends_a_real_process(tmp_path: Path) -> None:
    """A context so long that it is still writing when the signal comes."""
    shape = random_models.LLAMA | {"context_length": 50_000, "n_layer": 1}
    endless = str(folders.ours(tmp_path / "endless", shape, generation={}))
    line = ["generate", endless, "the", "--max-new-tokens", "49000", "--min-new-tokens", "49000"]
    begun = "the" + pellucid.load(endless).generate("the", 4, min_new_tokens=4)
    done = fork_server().run(line, tmp_path, until=begun.encode(), then=signal.SIGINT)
    assert done.code == 130 and done.err == b"interrupted\n"
    assert done.out.startswith(begun.encode()) and done.out.endswith(b"\n")


# ---- several prompts


PROMPTS = ["the", "a naïve cat", "12"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "the", "id": "x"}, "a", {"prompt": [3, 4], "sampling": {"max_new_tokens": 2}}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return path


def test_several_prompts_are_printed_in_order_with_a_blank_line_between(shell: Shell, folder: Path) -> None:
    done = shell("generate", folder, *PROMPTS, "--max-new-tokens", 6)
    texts = pellucid.load(folder).generate(PROMPTS, 6)
    assert done == Done(0, "\n".join(f"{a}{b}\n" for a, b in zip(PROMPTS, texts, strict=True)), "")
    assert [
        json.loads(line)["text"]
        for line in shell("generate", folder, *PROMPTS, "--max-new-tokens", 6, "--json").out.splitlines()
    ] == texts


def test_several_texts_of_one_prompt_have_a_number(shell: Shell, folder: Path) -> None:
    asked = ("generate", folder, "the", "-n", 3, "--temperature", 2, "--seed", 1, "--max-new-tokens", 5)
    texts = pellucid.load(folder).generate("the", 5, 2, 1, n=3)
    assert shell(*asked).out == "\n".join(f"the{text}\n" for text in texts)
    found = [json.loads(line) for line in shell(*asked, "--json").out.splitlines()]
    assert [(one["choice"], one["text"]) for one in found] == list(enumerate(texts))


def test_prompts_of_a_file_keep_their_ids_and_settings(shell: Shell, folder: Path, prompts: Path) -> None:
    done = shell("generate", folder, "--file", prompts, "--max-new-tokens", 4, "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one.get("id") for one in found] == ["x", None, None]
    assert [one["prompt"] for one in found] == ["the", "a", [3, 4]]
    assert [len(one["ids"]) for one in found] == [4, 4, 2]
    asked = ("generate", folder, "--file", "-", "--max-new-tokens", 4, "--json")
    assert shell(*asked, stdin=prompts.read_bytes()).out == done.out


def test_a_wrong_line_is_named_before_anything_runs(shell: Shell, folder: Path, tmp_path: Path) -> None:
    for line, words in (
        ('{"prompt": "a", "sampling": {"temprature": 1}}', "'temperature'"),
        ('{"prompt": "a", "sampling": {"temperature": -1}}', "temperature must be"),
        (json.dumps("a" * 100), "do not fit the context"),
        ("the", "is not JSON"),
    ):
        (tmp_path / "p.jsonl").write_text(f'"right"\n{line}\n')
        done = shell("generate", folder, "--file", tmp_path / "p.jsonl")
        assert (done.code, done.out) == (2, "") and "p.jsonl, line 2" in done.err and words in done.err


def test_results_go_to_a_file_that_is_not_replaced_unasked(
    shell: Shell, folder: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("generate", folder, "--file", prompts, "--max-new-tokens", 4)
    assert shell(*asked, "-o", out) == Done(0, "", "")
    assert out.read_text("utf-8") == shell(*asked, "--json").out
    done = shell(*asked, "-o", out)
    assert done.code == 2 and "--force" in done.err
    assert shell("generate", folder, "the", "-o", out, "--force").code == 0
    assert len(out.read_text("utf-8").splitlines()) == 1
    done = shell("generate", folder, "the", "-o", prompts, "--force")
    assert done.code == 2 and "not a file of results" in done.err


def test_ctrl_c_keeps_the_results_that_are_there(
    shell: Shell, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, out = Handle.result, tmp_path / "out.jsonl"
    seen = list[Handle]()

    def interrupt(handle: Handle) -> list[Completion]:
        seen.append(handle)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return results(handle)

    monkeypatch.setattr(Handle, "result", interrupt)
    done = shell("generate", folder, *PROMPTS, "--max-new-tokens", 4, "-o", out)
    assert dataclasses.astuple(done) == (130, "", "interrupted\n")
    assert [json.loads(line)["prompt"] for line in out.read_text("utf-8").splitlines()] == PROMPTS[:2]


def test_prompts_are_given_in_one_way(shell: Shell, folder: Path, prompts: Path) -> None:
    for wrong in ([], ["the", "--file", prompts], ["-", "-"]):
        done = shell("generate", folder, *wrong)
        assert (done.code, done.out) == (2, "") and "standard input" in done.err


def test_a_preset_is_printed_in_full(shell: Shell, folder: Path) -> None:
    done = shell("generate", folder, "the", "--preset", "creative", "--seed", 3, "--max-new-tokens", 4)
    assert done.code == 0 and "preset creative: temperature 1" in done.err and "seed 3" in done.err
    assert done.out == "the" + pellucid.load(folder).generate("the", 4, seed=3, preset="creative") + "\n"


def test_a_million_characters_are_refused_in_words(shell: Shell, folder: Path) -> None:
    done = shell("generate", folder, "-", stdin=b"the " * 250_000)
    assert (done.code, done.out) == (2, "") and "do not fit the context of 64" in done.err


# ---- the ledger


def test_a_ledger_is_a_table_on_standard_error_a_file_and_a_page(
    shell: Shell, folder: Path, tmp_path: Path
) -> None:
    plain = ("generate", folder, "the", "--max-new-tokens", 4, "--temperature", 1, "--seed", 3)
    json_file, page = tmp_path / "a.json", tmp_path / "a.html"
    done = shell(*plain, "--ledger", "--ledger-file", json_file, "--ledger-file", page)
    assert done.out == shell(*plain).out and "surprisal" in done.err
    assert Ledger.read(json_file).seed == 3 and page.read_bytes().startswith(b"<!")
    assert shell("replay", json_file).code == 0
    done = shell(*plain, "--ledger-file", json_file)
    assert (done.code, done.out) == (2, "") and "--force" in done.err
    assert shell(*plain, "--ledger-file", json_file, "--force").code == 0


def test_a_ledger_file_is_of_one_prompt(shell: Shell, folder: Path, tmp_path: Path) -> None:
    done = shell("generate", folder, *PROMPTS, "--ledger-file", tmp_path / "a.json")
    assert (done.code, done.out) == (2, "") and "one prompt" in done.err
    done = shell("generate", folder, *PROMPTS, "--max-new-tokens", 2, "--ledger", "--json")
    assert len(done.out.splitlines()) == 3 and done.err.count("2 tokens, ended by length") == 3


def test_a_file_after_ledger_is_not_taken_for_a_prompt(shell: Shell) -> None:
    done = shell("generate", "abcd", "A B", "--ledger", "a.html")
    assert done.code == 2 and "--ledger-file a.html" in done.err
