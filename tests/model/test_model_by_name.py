"""Loading a model, one's own included, and what is said where it cannot be."""

from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import PellucidError
from pellucid.config import preset_text
from pellucid.learning.sheets.file import write_sheet
from pellucid.learning.sheets.make import make_sheet
from pellucid.server.explorer.export import write_page as write_explorer_page
from pellucid.server.explorer.held_trace import RunRequest


def refused(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    with pytest.raises(PellucidError) as error:
        pellucid.load(tmp_path / "mine.toml")
    return str(error.value)


def test_the_public_names_exist() -> None:
    assert all(hasattr(pellucid, name) for name in pellucid.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        pellucid.lode  # noqa: B018


def test_a_user_s_model_is_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        preset_text("abcd").replace("[[2, 0], [0, 2]]", "[[1, 0], [0, 1]]"), "utf-8"
    )
    tape = pellucid.load(tmp_path / "mine.toml").trace("A B").tape
    assert tape["blocks.0.attn.pattern"][0, 0, 1] == pytest.approx([0.33024, 0.66976], abs=5e-6)


def test_a_shape_without_weights_says_what_it_can_show() -> None:
    with pytest.raises(PellucidError, match=r"config-only preset.*`pellucid explain gpt2`"):
        pellucid.load("gpt2")


def test_an_unknown_model_is_named_with_the_nearest() -> None:
    with pytest.raises(PellucidError, match=r"'abdc' is not a model.*'abcd'"):
        pellucid.load("abdc")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[config]", "[confg]", "'confg'"),
        (
            'words = ["A", "B", "C", "D"]',
            'words = ["A"]',
            "different words; got 1",
        ),
        (
            '"unembed.weight" = ',
            '"unembd.weight" = ',
            "'unembed.weight'",
        ),
        ("[[1, 0], [0, 1], [0, 1], [1, 0]]", "[[1, 0]]", "unembed.weight has the shape (1, 2), not (4, 2)"),
        ("[[1, 0], [0, 1], [0, 1], [1, 0]]", '"x"', "'unembed.weight' is not a table of numbers"),
        ("[[1, 0], [0, 1], [0, 1], [1, 0]]", "[[1], [0, 1]]", "'unembed.weight' is not a table of numbers"),
        (
            '"unembed.weight" = [[1, 0], [0, 1], [0, 1], [1, 0]]',
            "",
            "unembed.weight (4, 2) is missing",
        ),
        ("vocab_size = 4", "vocab_size =", "is not TOML"),
        ('["A", "B", "C", "D"]', "4", "words must be a list of"),
        ('["A", "B", "C", "D"]', '["A", "B", "C", "C"]', "different words; got 3"),
        ('["A", "B", "C", "D"]', '["A", "B", "C", "D E"]', "words must be a list of"),
        ("[[1, 0], [0, 1], [0, 1], [1, 0]]", "[[true, false]]", "is not a table of numbers"),
        ("[weights]", "[[weights]]", "[weights] must be a table of names"),
        ("d_model = 2", "d_model = 2\nd_heads = 1", "mine.toml, [config]: a key of a config must be one of"),
    ],
)
def test_a_wrong_model_file_is_refused_with_the_reason(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert words in refused(tmp_path, preset_text("abcd").replace(old, new))


def test_a_model_without_config_or_file_is_refused(tmp_path: Path) -> None:
    assert "needs config" in refused(tmp_path, "words = []")
    with pytest.raises(PellucidError, match=r"cannot read .*: No such file"):
        pellucid.load(tmp_path / "other.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PellucidError, match="not UTF-8"):
        pellucid.load(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("prompt", "more", "words"),
    [
        ("", {}, "the prompt is empty"),
        ("A", {"target": " "}, "the target is empty"),
        ("A X", {}, "the word 'X' is not in this model's vocabulary"),
        ("A " * 17, {}, "17 tokens do not fit this model's context of 16"),
        ("A", {"backward": True}, "a loss needs a target"),
        ("A", {"update": "sgd", "lr": 1.0}, "a loss needs a target"),
        ("A", {"tagret": "B"}, "'tagret'.*'target'"),
        ("A", {"target": "B", "update": "sgd", "clip": -1.0}, "clip must be"),
        ("A", {"target": "B", "update": "sgd", "lr": float("nan")}, "lr must be a finite number, not nan"),
        ("A", {"update": "sdg", "lr": 1.0, "target": "B"}, "'sgd'"),
        (
            "A",
            {"update": "sgd", "lr": 1.0, "target": "B", "only": "x*"},
            r"only='x\*'",
        ),
    ],
)
def test_a_wrong_run_is_refused_with_the_reason(prompt: str, more: dict[str, object], words: str) -> None:
    with pytest.raises(PellucidError, match=words):
        pellucid.load("abcd").trace(prompt, **more)  # type: ignore[arg-type]


def test_the_target_follows_the_prompt_and_only_its_tokens_count() -> None:
    trace = pellucid.load("abcd").trace("A B", target="C D")
    assert trace.run["ids"] == [[0, 1, 2]]
    assert trace.run["targets"] == [[-100, 2, 3]]
    nll = trace.tape["nll"][0]
    assert nll[0] == 0
    assert trace.tape["loss"] == pytest.approx(nll[1:].mean())


def test_no_file_for_others_names_a_folder_of_the_user(tmp_path: Path) -> None:
    home = tmp_path / "home-of-ann"
    (home / "models").mkdir(parents=True)
    texts = [home / "text.txt", home / "more.txt"]
    for text in texts:
        text.write_text("A B C D " * 10)
    pellucid.load("abcd").save(home / "models" / "mine")
    model, out = pellucid.load(home / "models" / "mine"), tmp_path / "out"
    out.mkdir()
    pellucid.evaluate(model, texts, output=out / "evaluation.html")
    pages = [out / "calibration.html", out / "calibration.svg"]
    pellucid.calibrate(model, home / "text.txt", bins=5, output=pages, trace=out / "calibration.json")
    pellucid.look(model, "A B").save(out / "look.html")
    write_explorer_page(str(home / "models" / "mine"), out / "explorer.html", RunRequest("A B"))
    trace = model.trace("A B")
    sheet = make_sheet(trace, ["logits[t=1]"])
    write_sheet(out / "sheet.html", sheet)
    write_sheet(out / "sheet.json", sheet)
    model.generate("A B", 2, return_ledger=True)[1].save(out / "ledger.html")
    for file in out.iterdir():
        assert "home-of-ann" not in file.read_text("utf-8"), file.name
    for page in ("evaluation.html", "look.html", "explorer.html", "ledger.html"):
        assert "mine" in (out / page).read_text("utf-8"), page
    assert trace.run["model"] == "mine"
