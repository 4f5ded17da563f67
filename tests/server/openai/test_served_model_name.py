"""The name of a served model."""

from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.openai.served_model import check_model_name, make_model_name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("smollm2", "smollm2"),
        ("hf:HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M"),
        ("models/tiny.gguf", "tiny"),
        ("words.toml", "words"),
        ("runs/a", "a"),
        ("runs/a/model", "a"),
        ("runs/a/model/", "a"),
        ("a.b/c.d", "c.d"),
        ("/", "model"),
        ("日本", "model"),
        ("\x1b]0;a b\x07", "0-a-b"),
        ("x" * 500, "x" * 128),
        ("", None),
        (".", None),
    ],
)
def test_a_path_is_known_by_its_last_part(
    source: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_model_name(source) == (name or check_model_name(tmp_path.name.strip("-")))


@pytest.mark.parametrize("name", ["a", "org/model:latest", "A.b_c-9", "x" * 128])
def test_a_name_that_clients_can_send_is_accepted(name: str) -> None:
    assert check_model_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "é", "x" * 129, "<b>", "a\x00", "a?b", "a#b", "\u0661"]
)
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        check_model_name(name)
