"""A whole run, and a whole value, at a glance."""

import numpy as np

import pellucid
from pellucid.config import preset
from pellucid.explain.overview import overview, tree, window
from pellucid.explain.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights


def test_a_run_is_a_tree_of_names_with_shapes() -> None:
    text = "\n".join(overview(pellucid.load("abcd").trace("A B", target="C", update="sgd", lr=1.0)))
    assert "    pattern                   [b=1 h=1 t=2 s=2]" in text
    assert "blocks.0.resid_post = blocks.0.attn_out" in text
    assert "22 gradients: d.NAME" in text
    assert "values of updates: NAME@k" in text


def test_layers_alike_are_told_once() -> None:
    lines = list(tree(preset("gpt2").parameters()))
    assert sum("q_proj.weight" in line for line in lines) == 1
    assert "blocks.0  … blocks.11 alike" in lines


def test_a_small_value_is_shown_whole_with_its_tokens() -> None:
    trace = pellucid.load("abcd").trace("A B")
    assert list(window(trace, "blocks.0.attn.pattern")) == [
        "blocks.0.attn.pattern [b=1 h=1 t=2 s=2]   P: how much each position takes from each other",
        "           s=0 A    s=1 B",
        "  t=0 A        1        0",
        "  t=1 B  0.19557  0.80443",
    ]


def test_a_matrix_is_shown_as_the_formulas_use_it() -> None:
    text = "\n".join(window(pellucid.load("abcd").trace("A B"), "unembed.weight"))
    assert "W_U[c,v]" in text
    assert "  c=1      0      1      1      0" in text


def test_a_large_value_is_cut_to_a_window_with_its_sum_and_extremes() -> None:
    tape = Tape()
    tape.constant("x", np.arange(200.0).reshape(10, 20))
    lines = list(window(Trace(tape), "x"))
    assert len(lines) == 12
    assert lines[-1] == "of all 200: sum 19900, smallest 0 at x[i=0,j=0], largest 199 at x[i=9,j=19]"


def test_every_value_of_every_config_can_be_shown() -> None:
    for config in CONFIGS.values():
        tape = forward(config, weights(config), [[1, 2, 0]], [[2, -100, 1]])
        tape.backward(tape.ref("loss"))
        for name in tape.values:
            assert list(window(Trace(tape), name))
