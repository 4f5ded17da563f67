"""Weights on a tape: a quantized one is a step, and what follows is as with floats."""

import numpy as np
import pytest

from pellucid.base.errors import TapeError
from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.reference.training import add_weight, forward, train
from tests.reference.models import CONFIGS, IDS, TARGETS, check_explained, quantized_weights

QUERY = "blocks.0.attn.q_proj.weight"
every_model = pytest.mark.parametrize(
    ("name", "scheme"), [(name, scheme) for name in CONFIGS for scheme in ("int8", "int4")]
)


def dequantized(weights: dict[str, object]) -> dict[str, np.ndarray]:
    return {
        name: weight.dequantize(np.float64) if isinstance(weight, QuantizedWeight) else np.asarray(weight)
        for name, weight in weights.items()
    }


@every_model
def test_quantized_weights_compute_what_their_numbers_compute(name: str, scheme: str) -> None:
    config, weights = CONFIGS[name], quantized_weights(CONFIGS[name], scheme)
    tapes = [forward(config, given, IDS, TARGETS) for given in (weights, dequantized(weights))]
    for tape in tapes:
        tape.backward(tape.ref("loss"))
    assert tapes[1].values.keys() < tapes[0].values.keys()
    for value, wanted in tapes[1].values.items():
        np.testing.assert_array_equal(tapes[0][value], wanted)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_every_number_of_a_quantized_model_is_explained(scheme: str) -> None:
    tape = forward(CONFIGS["bare"], quantized_weights(CONFIGS["bare"], scheme), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    check_explained(tape)


def test_a_weight_is_explained_as_scale_times_integer_plus_minimum() -> None:
    tape = Tape()
    weight = quantize(np.array([[-1.0, 0.0, 0.5]] * 2, np.float32), Scheme.from_name("int4"))
    add_weight(tape, QUERY, weight)
    lines = str(derive(Trace(tape), f"{QUERY}[out=1,in=2]")).splitlines()
    assert "W_Q[in,out] = s_Q[out] · q_Q[in,out] + m_Q[out]" in lines[1]
    assert "0.099976 · 15 - 1" in lines[2]
    assert [line.split(" = ")[0].split(".")[-1] for line in lines[3:]] == [
        "scales[out=1]", "integers[out=1,in=2]", "minimums[out=1]",
    ]  # fmt: skip


def test_the_gradient_of_a_scale_is_the_sum_over_its_group() -> None:
    tape = forward(CONFIGS["llama"], quantized_weights(CONFIGS["llama"]), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    wanted = (tape[f"d.{QUERY}"] * tape[f"{QUERY}.integers"]).sum(-1, keepdims=True)
    np.testing.assert_allclose(tape[f"d.{QUERY}.scales"], wanted, rtol=1e-12)
    assert f"d.{QUERY}.integers" not in tape


def test_integers_are_a_parameter_without_a_gradient_that_is_not_edited() -> None:
    tape = forward(CONFIGS["llama"], quantized_weights(CONFIGS["llama"]), IDS)
    assert tape.roles[f"{QUERY}.integers"] == "param"
    assert tape[f"{QUERY}.integers"].dtype == np.int8
    assert f"{QUERY}.integers" not in {ref.name for ref in tape.parameters()}
    edited = Tape(edits={f"{QUERY}.integers": {0: 1.0}})
    with pytest.raises(TapeError, match="edit the weight"):
        add_weight(edited, QUERY, quantized_weights(CONFIGS["llama"])[QUERY])


def test_an_edited_cell_of_a_quantized_weight_is_the_given_number() -> None:
    tape = Tape(edits={QUERY: {1: 0.25}})
    weight = quantized_weights(CONFIGS["llama"])[QUERY]
    add_weight(tape, QUERY, weight)
    wanted = weight.dequantize(np.float64)
    np.testing.assert_array_equal(tape[f"{QUERY}.computed"], wanted)
    assert tape[QUERY].flat[1] == 0.25 and tape[QUERY].flat[0] == wanted.flat[0]


def test_quantized_weights_are_not_trained() -> None:
    with pytest.raises(TapeError, match=r"'embed\.weight' is quantized"):
        train(CONFIGS["llama"], quantized_weights(CONFIGS["llama"]), IDS, TARGETS, "sgd", 1, lr=0.1)
