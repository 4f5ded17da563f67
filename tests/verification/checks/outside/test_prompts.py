"""bos and chat templates are held to the tokenizer's own configuration."""

import sys
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.outside.prompts import measure_bos, measure_template
from pellucid.verification.verdict import Finding
from tests.faults.loaded import CHAT
from tests.formats.tokenizers import TEMPLATE, bpe_file
from tests.model import folders

HUGGINGFACE, GGUF = CHAT.replace("<TURN>", "<s>").replace("<END>", "</s>"), CHAT.replace("<TURN>", "<|turn|>")


def bos(path: Path) -> Finding:
    return measure_bos(Subject(pellucid.load(path)))


def template(path: Path) -> Finding:
    return measure_template(Subject(pellucid.load(path)))


def folder(path: Path, processor: Any = None, **settings: Any) -> Path:
    return bpe_file(folders.huggingface(path, "llama"), processor, **settings)


@pytest.mark.parametrize(
    ("processor", "settings", "shown", "decides"),
    [
        (None, {}, "nothing", "transformers"),
        (TEMPLATE, {}, "<s>", "by tokenizer.json"),
        (TEMPLATE, {"add_bos_token": False}, "<s>", "by tokenizer.json"),
        (None, {"add_bos_token": True}, "<s>", "by add_bos_token"),
        (None, {"add_bos_token": False}, "nothing", "by add_bos_token"),
    ],
)
def test_a_folder_says_itself_how_a_text_begins(
    processor: Any, settings: dict[str, Any], shown: str, decides: str, tmp_path: Path
) -> None:
    found = bos(folder(tmp_path, processor, **settings))
    assert found.verdict == "equal", found
    assert found.measured.startswith(f"{shown} in front of a text") and decides in found.measured


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("has_llamacpp", [True, False])
def test_a_gguf_file_says_it_by_its_key_and_llama_cpp_agrees(
    add_bos: bool, has_llamacpp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_llamacpp:
        monkeypatch.setitem(sys.modules, "xllamacpp", None)
    found = bos(folders.gguf_file(tmp_path / "m.gguf", add_bos=add_bos))
    assert found.verdict == "equal", found
    assert found.measured.startswith("<|begin|>" if add_bos else "nothing")
    assert "tokenizer.ggml.add_bos_token" in found.measured


def test_a_template_is_rendered_as_transformers_renders_it(tmp_path: Path) -> None:
    for path in (
        folder(tmp_path / "llama", TEMPLATE, chat_template=HUGGINGFACE),
        folders.gguf_file(tmp_path / "m.gguf", chat_template=GGUF),
        folders.ours(tmp_path / "ours", chat_template=GGUF, add_bos=True),
    ):
        found = template(path)
        assert found.verdict == "equal" and "4 renderings" in found.measured, found


def test_a_template_that_refuses_a_systems_message_is_tried_without_it(tmp_path: Path) -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    found = template(folder(tmp_path, chat_template=refusing + HUGGINGFACE))
    assert found.verdict == "equal" and "2 renderings" in found.measured


def test_a_template_that_transformers_cannot_render_is_skipped(tmp_path: Path) -> None:
    found = template(folder(tmp_path, chat_template="{{ raise_exception('never') }}"))
    assert found.verdict == "skipped"


def test_a_model_without_a_template_or_a_tokenizer_is_skipped(tmp_path: Path) -> None:
    path = folders.gguf_file(tmp_path / "m.gguf", tokenizer=None)
    assert bos(path).verdict == template(path).verdict == "skipped"


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, TEMPLATE, chat_template=HUGGINGFACE)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert bos(path).verdict == "equal"  # tokenizer.json decides
    found = template(path)
    assert found.verdict == "skipped" and "pip install transformers" in found.measured
