"""`tokenizer`: takes whatever is a model, and never writes over a stranger's files."""

import json
import shutil
from pathlib import Path

import pytest

from pellucid.data.tokens import TokenFolder
from pellucid.text.kinds import train
from tests.cli.commands import Shell
from tests.data.small_corpora import copy_of_prepared
from tests.formats.tokenizers import vocabulary
from tests.model import folders

TEXT = "The cat sat on the mat."


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same tokenizer wherever a person may have it."""
    place = tmp_path_factory.mktemp("places")
    model = folders.ours(place / "model")
    tokenizer = place / "tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, tokenizer)
    (place / "run").mkdir()
    (place / "run" / "recipe.toml").write_text("")
    shutil.copytree(model, place / "run" / "model")
    (place / "begun").mkdir()
    shutil.copytree(tokenizer, place / "begun" / "data" / "tokenizer")
    library = place / "home" / "models"
    library.mkdir(parents=True)
    folders.gguf_file(library / "mine.gguf")
    return {
        "a tokenizer's folder": tokenizer,
        "its file": tokenizer / "tokenizer.json",
        "a model's folder": model,
        "a GGUF file": library / "mine.gguf",
        "a run": place / "run",
        "a run without a model": place / "begun",
        "a name of the library": Path("mine"),
    }


NAMES = (
    "a tokenizer's folder", "its file", "a model's folder", "a GGUF file", "a run", "a run without a model",
    "a name of the library",
)  # fmt: skip


@pytest.fixture
def home(shell: Shell, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(places["a GGUF file"].parent.parent))


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_name_a_tokenizer_gives_the_same_ids(
    name: str, places: dict[str, Path], home: None, shell: Shell
) -> None:
    ids = shell("tokenizer", "encode", places[name], TEXT)
    assert ids.code == 0, ids.err
    assert ids.out == shell("tokenizer", "encode", places["a tokenizer's folder"], TEXT).out
    assert shell("tokenizer", "decode", places[name], *ids.out.split()).out == f"{TEXT}\n"
    assert shell("tokenizer", "explain", places[name], TEXT).code == 0


@pytest.mark.parametrize("name", ["a GGUF file", "a model's folder", "a name of the library"])
def test_prepare_takes_the_tokenizer_of_a_model_and_keeps_a_copy(
    name: str, places: dict[str, Path], home: None, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    command = ("data", "prepare", tmp_path / "text.txt", "--tokenizer", places[name], "-o", tmp_path / "out")
    done = shell(*command, "--workers", 1)
    assert done.code == 0, done.err
    kept = TokenFolder(tmp_path / "out")
    assert kept.tokenizer.decode(kept["train"].document(0).tolist()).startswith(TEXT)
    assert shell(*command, "--workers", 1).code == 0  # the same again: it is done already


def test_a_token_folder_a_preset_and_two_files_of_gpt2_have_tokenizers(shell: Shell, tmp_path: Path) -> None:
    assert shell("tokenizer", "encode", "abcd", "A B").out == "0 1\n"
    assert shell("tokenizer", "encode", copy_of_prepared(tmp_path), TEXT).code == 0
    vocab, merges = vocabulary()
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("\n".join(map(" ".join, merges)))
    assert shell("tokenizer", "encode", tmp_path, "the").out == f"{vocab['the']}\n"


# ---- where `tokenizer train` writes


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("more", [(), ("--force",)], ids=["plain", "force"])
@pytest.mark.parametrize("what", ["a model", "a stranger's tokenizer", "notes", "no name"])
def test_training_a_tokenizer_replaces_nothing_that_is_not_one_of_ours(
    what: str, more: tuple[str, ...], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    out = tmp_path / "out"
    if what == "a model":
        folders.ours(out)
    else:
        train("characters", [TEXT]).save(out)
        if what == "notes":
            (out / "notes.txt").write_text("mine")
        else:
            (out / "tokenizer_config.json").write_text("{}")
    before = files(tmp_path)
    monkeypatch.chdir(out)  # where "" would lead to
    place = "" if what == "no name" else out
    done = shell("tokenizer", "train", tmp_path / "text.txt", "--kind", "characters", "-o", place, *more)
    assert done.code == 2 and done.err.count("\n") == 1
    assert files(tmp_path) == before


def test_training_replaces_a_tokenizer_of_ours_by_order_only(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    command = ("tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "out", "--kind")
    assert shell(*command, "characters").code == 0
    before = files(tmp_path)
    assert shell(*command, "bytes").code == 2
    assert files(tmp_path) == before
    assert shell(*command, "bytes", "--force").code == 0
    assert "bytes" in (tmp_path / "out" / "tokenizer_config.json").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]


def test_compare_takes_all_texts_after_on_and_draws_what_it_prints(
    places: dict[str, Path], shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("Привет")
    command = ("tokenizer", "compare", places["a model's folder"], "bytes", "--on")
    texts = tmp_path / "a.txt", tmp_path / "b.txt"
    done = shell(*command, *texts, "--d-model", 8, "-o", tmp_path / "bars.svg", "-o", tmp_path / "bars.html")
    assert done.code == 0, done.err
    assert "Cyrillic" in done.out and "b.txt" in done.out
    for name in ("bars.svg", "bars.html"):
        assert b"by script" in (tmp_path / name).read_bytes()
    found = json.loads(shell(*command, texts[0], "--on", texts[1], "--json").out)["tokenizers"]
    assert [one["tokens"] for one in found][1] == len(TEXT) + 12 == found[0]["bytes"]
    assert list(found[0]["domains"]) == [str(text) for text in texts]


def test_compare_refuses_an_output_before_it_reads(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.svg").write_text("not a picture of ours")
    done = shell(
        "tokenizer", "compare", "bytes", "--on", "nowhere.txt", "-o", tmp_path / "mine.svg", "--force"
    )
    assert done.code == 2 and "mine.svg" in done.err and "nowhere" not in done.err
    assert shell("tokenizer", "compare", "bytes", "--on", "nowhere.txt").code == 2
    assert shell("tokenizer", "compare", "bytes").code == 2
