"""A run may begin from a model that is there already, and then keeps what makes it that model."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError, FileError
from pellucid.base.quantized import Scheme
from pellucid.engine.initializations import initialize
from pellucid.engine.transformer import Transformer
from pellucid.formats import model_folder
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.parts import kinds
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.recipe.toml import format_toml
from pellucid.training.resume import begin
from pellucid.training.saving.run_folder import RunFolder
from pellucid.training.start import resolve_recipe, warn_of_visible_targets
from pellucid.verification.runs.rebuild import rebuild_step
from tests.small_choices import small
from tests.training import small_models, small_run_folders
from tests.training.small_models import started
from tests.training.small_run_folders import go_on


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my.txt"
    path.write_text(small_models.TEXT)
    return path


def test_a_run_of_no_steps_gives_back_the_model_that_it_started_from(tmp_path: Path, text: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    settings: dict[str, Any] = {"chat_template": template, "add_bos": True, "generation": {"eos_token_id": 0}}
    start = small_models.folder(tmp_path / "start", spare=5, **settings)
    out = tmp_path / "out"
    started(small_models.table(out, start, text), "steps=0")
    before, after = model_folder.read(start), model_folder.read(out / "model")
    assert after.config == before.config  # rows of 12 tokens leave its context of 32 as it was
    for name, weight in before.weights.items():
        np.testing.assert_array_equal(after.weights[name], weight, err_msg=name)
    assert (after.chat_template, after.add_bos, after.generation) == tuple(settings.values())
    assert before.tokenizer is not None and after.tokenizer is not None
    assert after.tokenizer.encode(small_models.TEXT) == before.tokenizer.encode(small_models.TEXT)


def test_a_narrow_model_begins_by_fan_in_and_its_folder_says_so(tmp_path: Path) -> None:
    small_run_folders.trained(tmp_path / "run", "steps=0")
    begun = model_folder.read(tmp_path / "run" / "model")
    drawn = initialize(Transformer.empty(begun.config, dtype=torch.float64), "scaled_residual", seed=0)
    for name, weight in drawn.weights().items():
        np.testing.assert_array_equal(np.asarray(begun.weights[name]), weight, err_msg=name)
    assert RunFolder(tmp_path / "run").read_recipe()["train"]["initialization"] == "scaled_residual"


def test_a_model_with_quantized_weights_is_trained_as_floats(tmp_path: Path, text: Path) -> None:
    floats, start, out = small_models.folder(tmp_path / "floats"), tmp_path / "start", tmp_path / "out"
    quantized = quantize_pretrained(model_folder.read(floats), Scheme(8))
    model_folder.write(start, quantized)
    started(small_models.table(out, start, text), "steps=0")
    after = model_folder.read(out / "model")
    for name, weight in quantized.weights.items():
        np.testing.assert_array_equal(after.weights[name], np.asarray(weight), err_msg=name)


def test_a_model_learns_from_the_text_with_its_own_tokenizer(tmp_path: Path, text: Path) -> None:
    start, out = small_models.folder(tmp_path / "start"), tmp_path / "out"
    run = started(
        small_models.table(out, start, text),
        "steps=40",
        "optimizer.lr=0.01",
        "evaluation.every=20",
        "checkpoint.every=40",
    )
    losses = [line["loss"] for line in _lines(out) if line["kind"] == "evaluation"]
    assert losses[-1] < losses[0] - 0.1
    assert run.recipe.length == 12 and run.state.model.config.context_length == 32


def _lines(out: Path) -> list[dict[str, Any]]:
    from pellucid.training.history.log import read

    return list(read(out / "log.jsonl"))


def test_a_full_run_goes_on_bit_for_bit_after_its_start_is_gone(tmp_path: Path, text: Path) -> None:
    start = small_models.folder(tmp_path / "start")
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    started(small_models.table(straight, start, text))
    started(small_models.table(cut, start, text), stop=2)
    shutil.rmtree(start)
    go_on(cut)
    weights = [(out / "model" / "model.safetensors").read_bytes() for out in (straight, cut)]
    assert weights[0] == weights[1]
    last = RunFolder(cut).read_status().step
    assert rebuild_step(cut, last, ["embed.weight"]).matches_checkpoint("embed.weight"), (
        "its steps can be asked about"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.tokenizer=bpe"], "data.tokenizer='bpe' does not go with start"),
        (["data.vocab_size=300"], "data.vocab_size=300 does not go with start"),
        (["model.n_layer=3"], "model.n_layer=3 does not go with start='.*context_length and dropout can be"),
        (["model.context_length=33"], "its rows have from 1 to 32 tokens"),
        (["start=nowhere/at-all"], "there is no such file or folder"),
        (["start=", "lora.rank=2"], "name it with start="),
        (["start=", "model={}"], "model.context_length is missing"),
    ],
)
def test_what_does_not_go_with_a_start_is_reported(
    changes: list[str], words: str, tmp_path: Path, text: Path
) -> None:
    start = small_models.folder(tmp_path / "start")
    with pytest.raises((ConfigError, FileError), match=words):
        resolve_recipe(Recipe.from_dict(override(small_models.table(tmp_path / "out", start, text), changes)))


def test_what_the_start_has_already_may_be_said_again(tmp_path: Path, text: Path) -> None:
    start = small_models.folder(tmp_path / "start")
    asked = override(small_models.table(tmp_path, start, text), ["model.n_layer=2", "model.positions=rope"])
    recipe, found = resolve_recipe(Recipe.from_dict(asked))
    assert found is not None and recipe.length == 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.context_length=x", "context_length must be a whole number .*not 'x'"),
        ("model.n_head=3", "d_model=8 does not split into n_head=3"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_the_text_is_read(
    change: str, words: str, tmp_path: Path
) -> None:
    folder, message = RunFolder(tmp_path / "run"), list[str]()
    asked = small_run_folders.recipe(folder.path, f"data.path={tmp_path / 'no.txt'}", change)
    with folder.lock(), pytest.raises(ConfigError, match=words):
        begin(asked, folder, message.append)
    assert not message and not (folder.path / "recipe.toml").exists()


def test_rows_are_256_tokens_by_default_and_never_longer_than_the_context(tmp_path: Path) -> None:
    for context, length in ((32, 32), (1000, 256)):
        start = small_models.folder(
            tmp_path / f"start{context}", small_models.LLAMA | {"context_length": context}
        )
        asked = {
            key: value
            for key, value in small_models.table(tmp_path, start, tmp_path).items()
            if key != "model"
        }
        recipe, _ = resolve_recipe(Recipe.from_dict(asked))
        assert recipe.length == length
        assert Recipe.from_dict(asked | {"model": {"context_length": length}}) == recipe


@pytest.mark.parametrize("path", ["stories:easy", "task:copy"])
def test_words_that_a_text_brings_along_do_not_go_with_a_start(path: str, tmp_path: Path) -> None:
    start, out = small_models.folder(tmp_path / "start"), tmp_path / "out"
    with pytest.raises(ConfigError, match=path):
        started(small_models.table(out, start, tmp_path), f"data.path={path}")


def test_token_files_of_another_tokenizer_are_refused(tmp_path: Path, text: Path) -> None:
    from pellucid.data.prepare import prepare
    from pellucid.text.corpus import Corpus
    from pellucid.text.kinds import train

    tokens, out = tmp_path / "tokens", tmp_path / "out"
    train("bpe", [small_models.TEXT[::-1]], 300).save(tmp_path / "other")
    prepare(Corpus([str(text)], validation=0.1), tmp_path / "other", tokens, 1)
    start = small_models.folder(tmp_path / "start")
    with pytest.raises(ConfigError, match="another tokenizer"):
        started(small_models.table(out, start, tokens))


# ---- targets that the mask shows


def warn(mask: str, length: int) -> str:
    recipe = Recipe.from_dict(override(read_table("stories"), [f"model.mask={mask}"]))
    return warn_of_visible_targets(recipe.config(9), length)


@pytest.mark.parametrize("kind", kinds("masks"))
def test_a_mask_that_shows_a_target_is_warned_of(kind: str) -> None:
    """The target of a position is the token at the next one."""
    mask, at = format_toml(small("masks", kind)), np.arange(16)
    config = Recipe.from_dict(override(read_table("stories"), [f"model.mask={mask}"])).config(9)
    visible = config.mask.compute_mask(at, at)
    shown = np.ones(15, bool) if visible is None else np.diagonal(visible, 1)
    assert (f"{kind} lets {shown.sum()} of the 16 positions" in warn(mask, 16)) is bool(shown.any())


def test_the_warning_names_the_mask_and_says_how_many_targets_it_shows() -> None:
    assert "model.mask=none lets 127 of the 128 positions" in warn("none", 128)
    assert "model.mask=prefix lets 2 of the 128 positions" in warn("{kind='prefix', length=3}", 128)
    assert warn("{kind='prefix', length=1}", 128) == warn("none", 1) == ""
