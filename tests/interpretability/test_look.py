"""`pellucid.look`: views by name, settings by name, tokens by text; what cannot be shown is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import PellucidError, UsageError
from pellucid.interpretability.look import fit_lens
from pellucid.interpretability.look_kinds import LOOKS
from pellucid.interpretability.runner import EngineRunner
from tests.evaluation.small_models import make_model, with_bos


@pytest.mark.parametrize("kind", [kind for kind in LOOKS if kind not in ("heads", "probes", "geometry")])
def test_both_engines_show_the_same_numbers(kind: str) -> None:
    model = pellucid.load("abcd", dtype="float64")
    settings = {"corrupted": "C B", "answer": "C", "wrong": "A"} if kind in ("patching", "paths") else {}
    fast, slow = (
        pellucid.look(model, "A B", show=kind, path=path, **settings) for path in ("eager", "reference")
    )
    assert str(fast[kind].title) == str(slow[kind].title)
    assert_close(fast.to_data()["views"], slow.to_data()["views"])


def assert_close(one: object, other: object) -> None:
    """Equal but for rounding; times are not compared."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            if key not in ("rows", "seconds", "cost"):
                assert_close(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_close(*pair)
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, abs=1e-10)
    else:
        assert one == other


def test_a_token_is_named_by_its_text_or_its_id() -> None:
    by_text = pellucid.look("abcd", "A B", show="attribution", token="C", against="A")
    by_id = pellucid.look("abcd", [0, 1], show="attribution", token=2, against=0)
    assert by_text.to_data() == by_id.to_data()
    assert by_text["attribution"].data["token"] == 2


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("A B", {"show": "attributio"}),
        ("A B", {"show": []}),
        ("A B", {"show": "attribution", "corrupted": "A C"}),
        ("A B", {"show": "attribution", "tokn": "A"}),
        ("A B", {"show": "attribution", "token": "E"}),
        ("A B", {"show": "attribution", "token": 4}),
        ("A B", {"show": "attribution", "position": 2}),
        ("A B", {"show": "attention", "head": "0"}),
        ("A B", {"show": "attention", "head": "0.1"}),
        ("A B", {"show": "lens", "path": "fused"}),
        (None, {"show": "patching", "corrupted": "C B", "answer": "C", "wrong": "A"}),
        (None, {"show": "paths", "corrupted": "C B", "answer": "C", "wrong": "A"}),
        ("", {"show": "lens"}),
    ],
)
def test_what_cannot_be_shown_is_refused(prompt: str | None, asked: dict[str, object]) -> None:
    with pytest.raises(PellucidError):
        pellucid.look("abcd", prompt, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind, look in LOOKS.items() if not look.needs_prompt])
def test_without_a_prompt_a_view_reads_a_text_of_its_own_and_says_so_first(kind: str, tmp_path: Path) -> None:
    asked = {"names": ["kind"], "level": "tiny", "n_stories": 2} if kind == "probes" else {}
    found = pellucid.look(make_model() if kind == "probes" else "abcd", show=kind, **asked)
    if kind == "probes":  # which read stories, and no prompt
        assert not found.note and found.prompts == []
        return
    words = "No prompt was given, so this is about a text of its own: A B C D"
    assert str(found).splitlines()[0] == words == found.to_data()["note"]
    assert found.prompts == [["A", "B", "C", "D"]]
    found.save(tmp_path / "look.html")
    assert words in (tmp_path / "look.html").read_text("utf-8") and words in found._repr_html_()


def test_a_model_without_a_tokenizer_reads_random_tokens_twice() -> None:
    config = pellucid.ModelConfig(vocab_size=7, context_length=8, n_layer=1, n_head=2, d_model=8, d_ff=16)
    found = pellucid.look(pellucid.Model.from_config(config), show="heads")
    (tokens,) = found.prompts
    assert tokens[:4] == tokens[4:] and found.note.endswith("8 random tokens, one half twice.")
    small = pellucid.Model.from_config(replace(config, context_length=3))
    with pytest.raises(UsageError, match="no text of its own"):
        pellucid.look(small, show="heads")


def test_tokens_or_texts_stand_in_place_of_a_prompt() -> None:
    assert not pellucid.look("abcd", show="geometry", tokens=["A", "C"]).note
    assert not pellucid.look("abcd", show="heads", texts=["A C"]).note
    assert pellucid.look("abcd", show=["heads", "attention"], texts=["A C"]).note
    assert not pellucid.look("abcd", "A B", show="heads").note


def test_a_look_is_printed_saved_and_shown_in_a_notebook(tmp_path: Path) -> None:
    found = pellucid.look("abcd", "A B", show=["attribution", "attention"])
    assert repr(found) == "<Look inside abcd: attribution, attention>"
    assert "logit = Σ_i a_i" in str(found) and "<details" in found._repr_html_()
    found.save(tmp_path / "look.json")
    assert json.loads((tmp_path / "look.json").read_text())["prompts"] == [["A", "B"]]
    with pytest.raises(UsageError):
        found["lens"]


def test_stories_begin_as_every_text_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, first, run = make_model(), list[int](), EngineRunner.run

    def note(self: EngineRunner, ids: Any, *more: Any) -> Any:
        first.append(int(np.atleast_2d(ids)[0, 0]))
        return run(self, ids, *more)

    monkeypatch.setattr(EngineRunner, "run", note)
    asked = {"show": "probes", "names": ["kind"], "level": "tiny", "n_stories": 2}
    (bos,) = with_bos(model).encode("")
    pellucid.look(model, **asked)
    assert bos not in first
    first.clear()
    pellucid.look(with_bos(model), **asked)
    assert first == [bos, bos]


def test_a_model_without_a_tokenizer_is_looked_into_by_ids() -> None:
    config = pellucid.ModelConfig(vocab_size=7, context_length=8, n_layer=1, n_head=2, d_model=8, d_ff=16)
    model = pellucid.Model.from_config(config)
    assert pellucid.look(model, [1, 2, 3], show="attribution", token=5).prompts == [["1", "2", "3"]]
    with pytest.raises(PellucidError):
        pellucid.look(model, [1, 2, 3], show="attribution", token=" a")


def test_a_lens_is_fitted_written_and_read_again(tmp_path: Path) -> None:
    config = pellucid.ModelConfig(vocab_size=12, context_length=32, n_layer=2, n_head=2, d_model=8, d_ff=16)
    model = pellucid.Model.from_config(config, tokenizer=pellucid.load("abcd").tokenizer)
    (tmp_path / "text.txt").write_text("A B C D " * 12)
    fit = fit_lens(model, str(tmp_path / "text.txt"), tmp_path / "lens.safetensors", steps=3)
    by_fit = pellucid.look(model, [0, 1, 2], show="lens", tuned=fit)["lens"]
    by_file = pellucid.look(model, [0, 1, 2], show="lens", tuned=tmp_path / "lens.safetensors")["lens"]
    assert by_fit.data["states"] == by_file.data["states"] and "fit" in by_fit.data
    assert all(state.tuned <= state.plain for state in fit.states)
    with pytest.raises(PellucidError):
        fit_lens(model, str(tmp_path / "text.txt"), tmp_path / "lens.safetensors")
