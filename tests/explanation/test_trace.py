"""A whole run at a glance."""

import pellucid
from pellucid.config import preset
from pellucid.explanation.trace import format_overview, format_tree


def test_a_run_is_a_tree_of_names_with_shapes() -> None:
    text = "\n".join(format_overview(pellucid.load("abcd").trace("A B", target="C", update="sgd", lr=1.0)))
    assert "    pattern                   [b=1 h=1 t=2 s=2]" in text
    assert "blocks.0.resid_post = blocks.0.attn_out" in text
    assert "22 gradients: d.NAME" in text
    assert "values of updates: NAME@k" in text


def test_layers_alike_are_shown_once() -> None:
    lines = list(format_tree(preset("gpt2").parameters()))
    assert sum("q_proj.weight" in line for line in lines) == 1
    assert "blocks.0  … blocks.11 alike" in lines
