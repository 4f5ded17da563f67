"""`pellucid.calibrate`: models side by side, rounded weights, checkpoints of a run, and what is saved."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import FileError, PellucidError, UsageError
from pellucid.config import preset
from pellucid.evaluation.calibration import calibrate, measure
from pellucid.evaluation.calibration import states as states_module
from pellucid.evaluation.calibration.calibrate import list_checkpoints, save_temperature
from pellucid.generation.settings.resolve import resolve_sampling
from tests.data.small_corpora import text_file
from tests.evaluation.small_models import bpe, make_model, write

FEW = {"split": "line", "max_targets": 120, "bins": 5}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return text_file(tmp_path / "text.txt", 30)


def test_a_model_is_calibrated_by_its_name_or_at_hand(text: Path, tmp_path: Path) -> None:
    model = make_model()
    model.save(tmp_path / "saved")
    named = pellucid.calibrate(tmp_path / "saved", text, **FEW)
    at_hand = model.calibrate([str(text)], **FEW)
    assert named.calibrations[0].before.nll == at_hand.calibrations[0].before.nll
    assert named.fitted_temperature == at_hand.fitted_temperature
    assert "fitted T" in str(named) and named.to_data()["data"] == [str(text)]


def test_the_numbers_are_those_of_transformers_logits(text: Path, tmp_path: Path) -> None:
    """NLL, Brier, confidence and accuracy of one window, from another library's logits."""
    from transformers import AutoModelForCausalLM

    sizes = {"n_layer": 1, "d_model": 16, "n_head": 2, "n_kv_head": 2, "d_head": 8, "d_ff": 32}
    config = replace(preset("gpt2"), **sizes, vocab_size=300, context_length=32)
    model = pellucid.Model.from_config(config, tokenizer=bpe(), seed=3)
    model = model.replace(weights={name: 5 * np.asarray(array) for name, array in model.weights.items()})
    model.save_pretrained(tmp_path / "hf")
    line = "the cat sat on a mat and the dog ran"
    (tmp_path / "a.txt").write_text(line)
    scores = model.calibrate(tmp_path / "a.txt", fit_share=0.0, bins=5).calibrations[0].before
    ids = torch.tensor([bpe().encode(line)])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")(ids).logits[0, :-1]
    probs, targets = torch.softmax(logits.double(), -1), ids[0, 1:]
    onehot = torch.nn.functional.one_hot(targets, 300)
    assert scores.nll.value == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits.double(), targets)), abs=1e-5
    )
    assert scores.brier.value == pytest.approx(float((probs - onehot).square().sum(-1).mean()), abs=1e-5)
    assert scores.confidence == pytest.approx(float(probs.max(-1).values.mean()), abs=1e-5)
    assert scores.accuracy == float((probs.argmax(-1) == targets).double().mean())


def test_rounded_weights_and_further_models_are_rows_of_one_report(text: Path) -> None:
    model, other = make_model(), make_model(bpe(280), context_length=16)
    report = model.calibrate(text, against=[other, model], quantize=["q8_0", "Q4_0"], **FEW)
    names = [each.model for each in report.calibrations]
    assert names == ["new", "new as Q8_0", "new as Q4_0", "new (2)", "new (3)"]
    nll = [each.before.nll.value for each in report.calibrations]
    assert nll[4] == nll[0] != nll[1] != nll[2]
    assert abs(nll[1] - nll[0]) < abs(nll[2] - nll[0])
    assert report.to_data()["window"] == 16
    units = [set(each.split.units[each.split.is_fit]) for each in report.calibrations]
    assert units[0] == units[1] == units[2]


def test_temperature_scaling_never_raises_the_nll_of_what_it_was_fitted_on(text: Path) -> None:
    for seed in range(3):
        report = make_model(seed=seed).calibrate(text, vector=True, seed=seed, **FEW)
        fit, vector = report.calibrations[0].temperature_fit, report.calibrations[0].vector_fit
        assert fit is not None and vector is not None
        assert vector.steps[-1].nll <= fit.steps[-1].nll <= fit.steps[0].nll


def test_a_report_is_written_as_numbers_pictures_and_steps(text: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"a.{end}" for end in ("json", "svg", "html")]
    report = make_model().calibrate(text, output=outputs, trace=tmp_path / "steps.json", **FEW)
    assert json.loads(outputs[0].read_text()) == json.loads(json.dumps(report.to_data()))
    assert b"<svg" in outputs[1].read_bytes() and b"<html" in outputs[2].read_bytes()
    found = pellucid.explain(tmp_path / "steps.json", at="ece")
    assert found.value == pytest.approx(report.calibrations[0].before.ece.value)
    assert "text.txt#" in str(pellucid.explain(tmp_path / "steps.json", at="ece", depth=6, lines=None))
    with pytest.raises(FileError, match="--force"):
        make_model().calibrate(text, output=outputs[1], **FEW)
    with pytest.raises(UsageError, match="other formats"):
        make_model().calibrate(text, output=tmp_path / "a.txt", **FEW)


def test_a_large_vocabulary_has_a_trace_of_measured_predictions(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "MOST_LOGITS", 10)
    monkeypatch.setattr(states_module, "CHUNK", 1000)
    report = make_model().calibrate(text, **FEW)
    assert "logits" not in report.trace.tape
    assert report.trace.tape["ece"] == pytest.approx(report.calibrations[0].before.ece.value)
    assert report.trace.tape["temperature"] == pytest.approx(report.fitted_temperature)


# ---- saving


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Texts of `abcd` at temperature 1.5, of which it is overconfident."""
    model = pellucid.load("abcd")
    texts = [model.generate("A", max_new_tokens=14, temperature=1.5, seed=seed) for seed in range(40)]
    (tmp_path / "drawn.txt").write_text("\n".join(f"A{text}" for text in texts))
    return tmp_path / "drawn.txt"


def test_the_temperature_is_saved_as_the_generation_setting(drawn: Path, tmp_path: Path) -> None:
    pellucid.load("abcd").save(tmp_path / "m")
    (tmp_path / "m" / "generation_config.json").write_text('{"top_k": 40, "do_sample": false}')
    model = pellucid.load(tmp_path / "m")
    report = model.calibrate(drawn, save=True, split="line")
    assert any("do_sample false → true, temperature not set → " in note for note in report.notes)
    again = pellucid.load(tmp_path / "m").pretrained
    assert again.generation == {
        "top_k": 40, "do_sample": True, "temperature": float(f"{report.fitted_temperature:.6g}")
    }  # fmt: skip
    sampling = resolve_sampling(again.generation).sampling
    assert sampling.temperature == pytest.approx(report.fitted_temperature, rel=1e-5)


def test_a_temperature_that_raises_the_nll_of_the_test_part_is_not_saved(drawn: Path, tmp_path: Path) -> None:
    calibration = pellucid.calibrate("abcd", drawn, split="line").calibrations[0]
    worse = replace(calibration, settings=calibration.settings[::-1])
    worse = replace(
        worse,
        settings=tuple(
            replace(each, name=name)
            for each, name in zip(worse.settings, ("before", "fitted T"), strict=True)
        ),
    )
    assert worse.after is not None and worse.after.nll.value > worse.before.nll.value
    assert "raises the NLL" in save_temperature(tmp_path, worse)
    assert not list(tmp_path.glob("generation*"))


def test_a_temperature_at_a_limit_is_not_saved(text: Path, tmp_path: Path) -> None:
    calibration = make_model().calibrate(text, **FEW).calibrations[0]
    assert calibration.temperature_fit is not None
    bounded = replace(calibration, temperature_fit=replace(calibration.temperature_fit, is_bounded=True))
    assert "limit" in save_temperature(tmp_path, bounded) and not list(tmp_path.glob("generation*"))


def test_without_a_folder_nothing_can_be_saved_and_nothing_is_measured(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "_measure", lambda *arguments: pytest.fail("measured"))
    with pytest.raises(FileError, match="export"):
        make_model().calibrate(text, save=True)
    make_model().save(tmp_path / "m")
    (tmp_path / "elsewhere.json").write_text("{}")
    (tmp_path / "m" / "generation_config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(FileError, match="link"):
        pellucid.calibrate(tmp_path / "m", text, save=True)


# ---- checkpoints


def test_each_checkpoint_of_a_run_is_a_row(tmp_path: Path, text: Path) -> None:
    run = tmp_path / "run"
    for step, place in enumerate(
        ("checkpoints/step-0000010/model", "checkpoints/step-0000200/model", "model")
    ):
        (run / place).parent.mkdir(parents=True, exist_ok=True)
        make_model(seed=min(step, 1)).save(run / place)
    (run / "recipe.toml").write_text("")
    model = pellucid.load(run)
    assert [step for step, _ in list_checkpoints(model)] == [10, 200]
    assert list_checkpoints(pellucid.load(run / "checkpoints/step-0000010/model")) == list_checkpoints(model)
    report = model.calibrate(text, checkpoints=True, **FEW)
    assert [each.model for each in report.calibrations[1:]] == ["run at step 10", "run at step 200"]
    nll = [each.before.nll for each in report.calibrations]
    assert nll[0] == nll[2] != nll[1]
    (run / "checkpoints/step-0000010").rename(run / "checkpoints/.tmp-step-0000010")
    assert [step for step, _ in list_checkpoints(model)] == [200]


def test_a_model_without_a_run_has_no_checkpoints(text: Path, tmp_path: Path) -> None:
    make_model().save(tmp_path / "m")
    (tmp_path / "recipe.toml").write_text("")  # a recipe beside a model is not its run's
    with pytest.raises(UsageError, match="not the model of a run"):
        pellucid.calibrate(tmp_path / "m", text, checkpoints=True)


# ---- requests that cannot be


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperatures": 0}, "temperatures"),
        ({"temperatures": [float("nan")]}, "temperatures"),
        ({"bins": 0}, "bins"),
        ({"fit_share": 1.5}, "fit_share"),
        ({"max_targets": 0}, "max_targets"),
        ({"window": 33}, "window"),
        ({"quantize": "q9"}, "q9"),
        ({"against": "gpt2"}, "weights"),
        ({"against": "nowhere"}, "nowhere"),
        ({"split": "x"}, "split"),
        ({"output": ["no.json", "./no.json"]}, "twice"),
        ({"output": "no.json", "trace": "no.json"}, "twice"),
    ],
)
def test_a_request_that_cannot_be_is_refused(text: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(PellucidError, match=words):
        make_model().calibrate(text, **settings)


def test_a_text_without_a_target_is_refused(tmp_path: Path) -> None:
    write(tmp_path, one="a")
    with pytest.raises(UsageError, match="target"):
        make_model().calibrate(tmp_path / "one.txt")


def test_two_tokens_are_one_target(tmp_path: Path) -> None:
    write(tmp_path, two="a 0")
    report = make_model().calibrate(tmp_path / "two.txt", max_targets=1)
    assert report.calibrations[0].before.count == 1 and report.fitted_temperature is None
    assert "Nothing is fitted" in str(report) and "first 1 targets" in str(report)


def test_the_progress_of_reading_has_a_total(text: Path) -> None:
    seen = list[tuple[str, int, int | None]]()
    report = pellucid.calibrate(make_model(), text, **FEW, progress=lambda *now: seen.append(now))
    reading = [now for now in seen if now[0].endswith(": reading")]
    count = len(report.calibrations[0].split.is_test)
    assert reading[0][1:] == (0, count) and reading[-1][1:] == (count, count) and len(reading) > 2


def test_an_interrupt_reports_what_is_measured(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "_round", interrupt)
    report = make_model().calibrate(text, quantize=["F16"], **FEW)
    assert report.is_interrupted and len(report.calibrations) == 1
    assert "Interrupted" in str(report)
