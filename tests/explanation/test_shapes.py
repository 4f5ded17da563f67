"""The printed shapes of a config are those of a run, and need neither weights nor memory."""

import json
import time

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig, preset, presets
from pellucid.explanation.shapes import value_shapes
from pellucid.reference.training import forward
from tests.agreement.engines import COVER, DIFFERENT, Choice, config_of, text
from tests.cli.commands import Shell
from tests.reference.models import CONFIGS


def check(config: ModelConfig, tokens: int = 3, batch: int = 2) -> None:
    weights = {name: np.zeros(shape) for name, shape in config.parameters().items()}
    with np.errstate(all="ignore"):
        tape = forward(config, weights, np.zeros((batch, tokens), dtype=int))
    wanted = {name: value.shape for name, value in tape.values.items() if tape.roles[name] != "param"}
    assert value_shapes(config, tokens, batch) == wanted
    assert list(value_shapes(config, tokens, batch)) == list(wanted)


@pytest.mark.parametrize("config", [*DIFFERENT.values(), *CONFIGS.values()], ids=[*DIFFERENT, *CONFIGS])
def test_the_shapes_of_every_choice_are_those_of_a_run(config: ModelConfig) -> None:
    for tokens, batch in ((1, 1), (4, 3)):
        check(config, tokens, batch)


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_the_shapes_of_any_choices_together_are_those_of_a_run(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    check(config)


@pytest.mark.parametrize("name", presets())
def test_every_preset_shows_its_shapes_at_once(name: str) -> None:
    start = time.perf_counter()
    config = preset(name)
    shapes = pellucid.explain(name, tokens=4, batch=2)
    assert shapes.values()["logits"] == (2, 4, config.vocab_size)
    assert len(list(shapes.to_lines())) > 10 and time.perf_counter() - start < 10


def test_the_command_prints_shapes_for_a_preset_and_for_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(capsys, monkeypatch)
    for name, logits in (("gpt2", "[b=2 t=4 v=50257]"), ("abcd", "[b=2 t=4 v=4]")):
        assert logits in shell("explain", name, "--tokens", "4", "--batch", "2", "--lines", "0").out
    data = json.loads(shell("explain", "gpt2", "--tokens", "4", "--json").out)
    assert data["values"]["blocks.11.mlp.act"] == [1, 4, 3072]
    assert data["parameters"]["embed.weight"] == [50257, 768]


@pytest.mark.parametrize(
    "given",
    [{"batch": 2}, {"tokens": 0}, {"tokens": 2000}, {"tokens": 4, "batch": 0}, {"tokens": 4, "at": "x"}],
)
def test_sizes_that_do_not_fit_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        pellucid.explain("gpt2", **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tokens"):
        pellucid.explain("abcd", "A B", tokens=4)


@pytest.mark.parametrize("name", ["gpt2", "abcd"])
def test_an_argument_that_shapes_do_not_use_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UsageError, match="target"):
        pellucid.explain(name, tokens=4, target="C")
    for given in ({"tokens": 4}, {"batch": 2}, {"target": "C"}, {"raw_tokens": True}):
        with pytest.raises(UsageError, match=next(iter(given))):
            pellucid.explain(pellucid.trace("abcd", "A B"), **given)  # type: ignore[arg-type]
