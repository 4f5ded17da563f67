"""A run on conversations: the model's own template, only answers count, nothing is lost silently."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError, TokenError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.sources.conversations import read_conversations
from pellucid.data.sources.settings import DataSettings
from pellucid.data.sources.source import Source, open_source
from pellucid.formats import model_folder
from pellucid.training.events import Evaluated
from pellucid.training.history.log import read
from pellucid.training.recipe import Recipe
from pellucid.training.resume import begin, resume
from pellucid.training.saving.run_folder import RunFolder
from tests.training import small_models
from tests.training.small_models import started

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
Opened = Callable[..., Source]


def talk(question: str, *answers: str) -> dict[str, list[dict[str, str]]]:
    messages = [{"role": "user", "content": question}]
    for answer in answers:
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    return {"messages": messages[:-1]}


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    message = [talk(f"The cat sat on {i}?", f"The dog {i}.", "A bird.") for i in range(20)]
    path.write_text("\n".join(map(json.dumps, message)))
    return path


def opened(path: Path, length: int = 90, validation: float = 0.1, **settings: str) -> Source:
    start = small_models.model(
        small_models.LLAMA | {"context_length": 200}, **{"chat_template": TEMPLATE} | settings
    )
    return open_source(
        DataSettings(path=str(path), batch_size=2, validation=validation),
        length,
        0,
        path.parent,
        print,
        start,
    )


def test_only_the_assistant_s_words_and_their_ends_are_targets(chats: Path) -> None:
    source = opened(chats)
    batch = source.train.take(1, slice(0, 1))
    said = source.tokenizer.decode([int(id) for id in batch.targets[0] if id != IGNORE_INDEX])
    assert re.fullmatch(r"The dog \d+\.<end>A bird\.<end>", said)
    whole = source.tokenizer.decode(batch.ids[0].tolist())
    assert whole.startswith("<s>user: The cat sat on")
    counted = batch.targets[0] != IGNORE_INDEX
    np.testing.assert_array_equal(batch.ids[0][1:][counted[:-1]], batch.targets[0][counted])


def test_a_share_of_the_conversations_is_held_out_and_is_the_same_for_every_run(chats: Path) -> None:
    a, b = (
        read_conversations([str(chats)], small_models.model(chat_template=TEMPLATE), 90, 0.1)
        for _ in range(2)
    )
    assert (len(a.train), len(a.held_out)) == (18, 2)
    assert [ids.tolist() for ids, _ in a.held_out] == [ids.tolist() for ids, _ in b.held_out]
    learned = {tuple(ids) for ids, _ in a.train}
    assert len(learned) == 18 and not learned & {tuple(ids) for ids, _ in a.held_out}
    assert len(opened(chats, validation=0.0).validation) == 0


def test_long_conversations_are_cut_or_omitted_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    message = [talk("Who?", "I."), talk("Who?", "I." + " and I" * 40), talk("Who?" * 40, "I.")]
    path.write_text("\n".join(map(json.dumps, message)))
    source = opened(path, length=40, validation=0.0)
    assert capsys.readouterr().out.splitlines() == [
        "1 conversations are longer than a row of 40 tokens: cut there",
        "1 more have their first answer beyond it: omitted",
    ]
    assert "2 conversations to train on" in source.description
    with pytest.raises(ConfigError, match="no conversation with an answer within 5 tokens"):
        opened(path, length=5)


def test_a_question_is_asked_as_the_template_asks_it(chats: Path) -> None:
    source = opened(chats)
    assert source.opening is not None
    shown, ids = source.opening("Who?")
    assert shown == "Who? → " and source.tokenizer.decode(ids) == "<s>user: Who?<end>\n<s>assistant: "
    assert source.opening("")[0].startswith("The cat sat on")


def test_conversations_need_a_model_with_a_template(chats: Path) -> None:
    data = DataSettings(path=str(chats))
    with pytest.raises(ConfigError, match="new weights has no chat template"):
        open_source(data, 30, 0, chats.parent)
    with pytest.raises(ConfigError, match="no chat template"):
        open_source(data, 30, 0, chats.parent, start=small_models.model())


def test_an_error_names_file_and_line(chats: Path) -> None:
    with chats.open("a") as file:
        file.write('\n{"messages": [{"role": "user", "content": 3}]}')
    with pytest.raises(FileError, match=r"chats.jsonl, line 21: message 0"):
        opened(chats)
    picky = "{% if messages[0].content == 'Why?' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    chats.write_text(json.dumps(talk("Who?", "I.")) + "\n" + json.dumps(talk("Why?", "I.")))
    with pytest.raises(ConfigError, match=r"chats\.jsonl, line 2: "):
        opened(chats, chat_template=picky)
    chats.write_text('{"prompt": "\\ud800", "completion": "I."}')
    with pytest.raises(TokenError, match=r"chats.jsonl, line 1: .*surrogate"):
        opened(chats)


@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_learns_the_answers_goes_on_bit_for_bit_and_stays_a_chat_model(
    rank: int, chats: Path, tmp_path: Path
) -> None:
    start = small_models.folder(
        tmp_path / "start", small_models.LLAMA | {"context_length": 100}, chat_template=TEMPLATE
    )
    straight, cut = tmp_path / "straight", tmp_path / "cut"

    def table(out: Path) -> dict[str, object]:
        extra = {
            "model": {"context_length": 90}, "steps": 8, "lora": {"rank": rank},
            "optimizer": {"lr": 0.02}, "evaluation": {"every": 4, "sample": 5}, "checkpoint": {"every": 4},
        }  # fmt: skip
        return small_models.table(out, start, chats) | extra

    run = started(table(straight))
    losses = [line["loss"] for line in read(straight / "log.jsonl") if line["kind"] == "step"]
    assert losses[-1] < losses[0] - 0.02
    folder = RunFolder(cut)
    with folder.lock():
        run = begin(Recipe.from_dict(table(cut)), folder, print)
        for event in run.events():
            if isinstance(event, Evaluated):
                run.request_stop()
    with folder.lock():
        list(resume(folder, print).events())
    weights = [(out / "model" / "model.safetensors").read_bytes() for out in (straight, cut)]
    assert weights[0] == weights[1]
    assert model_folder.read(cut / "model").chat_template == TEMPLATE
    chats.write_text(json.dumps(talk("Who?", "I.")))
    with folder.lock(), pytest.raises(ConfigError, match="data loader's state"):
        resume(folder, print)
