"""The story of a number: right, followed where it matters, short enough, and about gradients too."""

import dataclasses
import math
import re
import time
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.explanation.derive import derive, explain
from pellucid.explanation.trace import IN_A_SHELL, Trace
from pellucid.model import Model
from pellucid.reference.ops.arithmetic import add, power
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights


@pytest.fixture(scope="module")
def abcd() -> Model:
    return pellucid.load("abcd")


def test_depth_four_of_a_probability_reaches_the_pattern(abcd: Model) -> None:
    """probs ← logits ← attn_out ← z ← pattern: the three aliases between cost nothing."""
    text = str(abcd.explain("A B", at="probs[t=1,v=2]", depth=4))
    assert "probs[t=1,v=2] = 0.32384  (t=1 B, v=2 C)" in text
    assert "= e^0.80443 / (e^0.19557 + e^0.80443 + e^0.80443 + e^0.19557)" in text
    assert "P[t,s] = e^M[t,s] / Σ_s' e^M[t,s']" in text
    assert "= e^1.4142 / (e^0 + e^1.4142)" in text
    assert "e^M[t,s]" not in str(abcd.explain("A B", at="probs[t=1,v=2]", depth=3))


def test_a_gradient_is_explained_like_a_value(abcd: Model) -> None:
    """The p − y of the textbooks, in its two parts: 0.32384 − 1."""
    text = str(abcd.explain("A B", at="d.logits[t=1,v=2]", target="C"))
    assert text.startswith("d.logits[t=1,v=2] = -0.67616  (t=1 B, v=2 C)")
    assert "dℓ[t,v] = dℓ|nll[t,v] + dℓ|lse[t,v]" in text
    assert "= -1 + 0.32384" in text
    assert "d.loss = 1   input, gradient of the loss with respect to itself: 1" in text


def test_an_update_is_explained_like_a_value(abcd: Model) -> None:
    text = str(abcd.explain("A B", at="unembed.weight@1[v=2,c=1]", target="C", update="sgd", lr=1.0))
    assert "W_U@1[c,v] = W_U[c,v] - 1 · dW_U[c,v]" in text
    assert "= 1 - 1 · (-0.54392)" in text


def test_a_value_after_an_update_is_followed_through_it(abcd: Model) -> None:
    text = str(
        abcd.explain(
            "A B", at="probs@1[1,2]", target="C", update="sgd", lr=1.0, only="unembed.weight", depth=2
        )
    )
    assert text.startswith("probs@1[t=1,v=2] = 0.47381")
    assert "W_U@1[c,v] = W_U[c,v] - 1 · dW_U[c,v]" in text


def test_the_operand_in_the_largest_term_is_followed_and_the_others_are_listed(abcd: Model) -> None:
    root = abcd.explain("A B", at="blocks.0.attn.z[t=1,d=1]", depth=0)
    pattern, _ = root.operands
    assert pattern.address == "blocks.0.attn.pattern[t=1,s=1]"
    assert [cell.value for cell in pattern.others] == pytest.approx([0.19557], abs=5e-6)


def test_a_probability_follows_its_own_logit_even_where_another_is_larger(abcd: Model) -> None:
    root = abcd.explain("A B", at="probs[t=1,v=0]", depth=0)
    assert [operand.address for operand in root.operands] == ["logits[t=1,v=0]"]


def test_a_cell_is_explained_once(abcd: Model) -> None:
    text = str(abcd.explain("A B", at="loss", target="C", depth=6, lines=None))
    assert text.count("Z[t,d] = Σ_s P[t,s] V[s,d]") == 1
    assert text.count("(shown below)") == 1


@pytest.mark.parametrize("most", [1, 5, 12, 40])
def test_text_keeps_within_its_lines_nearest_first_and_says_where_it_stopped(abcd: Model, most: int) -> None:
    short = str(abcd.explain("A B", at="d.embed.weight[1,1]", target="C", depth=20, lines=most)).splitlines()
    assert len(short) <= max(most, 2)
    assert " …" in "".join(short)
    assert short[-1] == "… could be expanded further: lines=None"
    if most >= 5:
        assert "dE[v,c] = Σ dX_E[t,c] over the positions with this id" in short[1]
    whole = str(abcd.explain("A B", at="d.embed.weight[1,1]", target="C", depth=20, lines=None))
    assert len(whole.splitlines()) > 60
    assert "…" not in whole


@pytest.mark.parametrize(
    ("depth", "most", "advice"), [(1, 40, "a larger depth="), (20, 12, "lines=None"), (20, None, "")]
)
def test_only_what_would_show_more_is_advised(abcd: Model, depth: int, most: int | None, advice: str) -> None:
    def message(depth: int, most: int | None) -> str:
        return str(abcd.explain("A B", at="loss", target="C", depth=depth, lines=most))

    last = message(depth, most).splitlines()[-1]
    assert last.startswith("…") == bool(advice) and last.endswith(advice)
    if advice:
        more = message(depth + 1, most) if "depth" in advice else message(depth, None)
        assert len(more.splitlines()) > len(message(depth, most).splitlines())


def test_a_depth_that_needs_more_lines_says_both(abcd: Model) -> None:
    short = abcd.explain("A B", at="loss", target="C", depth=1, lines=10)
    assert short.cut_by == ("depth", "lines")
    assert str(short).endswith("a larger depth= with lines=None")


def test_a_shell_gets_its_own_options(abcd: Model) -> None:
    message = list(abcd.explain("A B", at="loss", target="C", depth=1).to_lines(more=IN_A_SHELL))
    assert message[-1].endswith("a larger --depth")


@pytest.mark.parametrize(
    ("name", "value"),
    [("at", 5), ("depth", "2"), ("depth", -1), ("depth", True), ("top", 0), ("lines", "x")],
)
@pytest.mark.parametrize("at", ["probs[t=1,v=2]", "probs"])
def test_an_argument_of_a_wrong_type_is_named_before_anything_runs(
    abcd: Model, at: str, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=name):
        explain(abcd.trace("A B"), **({"at": at} | {name if name != "lines" else "most": value}))
    monkeypatch.setattr(abcd, "trace", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(UsageError, match=name):
        abcd.explain("A B", **({"at": at} | {name: value}))


def test_a_derivation_is_short_at_a_prompt_and_a_tree_in_a_notebook(abcd: Model) -> None:
    found = abcd.explain("A B", at="probs[t=1,v=2]", depth=4)
    assert repr(found).startswith("<Derivation probs[t=1,v=2] = 0.32384  (t=1 B, v=2 C)")
    assert len(repr(found)) < 300 and "\n" not in repr(found)
    assert len(repr(found.operands)) < 300
    html = found._repr_html_()
    assert "P[t,s] = e^M[t,s] / Σ_s&#x27; e^M[t,s&#x27;]" in html
    assert html.count("<details") == html.count("</details>") > 3
    assert "http" not in html and "<script" not in html


def test_a_trace_is_short_at_a_prompt_and_its_names_when_printed(abcd: Model) -> None:
    trace = abcd.trace("A B")
    assert repr(trace) == "<Trace of abcd on 2 tokens: 11 steps, 18 values>"
    assert "blocks.0" in str(trace) and "blocks.0" in trace._repr_html_()


def test_untrusted_names_are_escaped_in_a_notebook() -> None:
    tape = Tape()
    tape.constant("x", 1.0)
    trace = Trace(tape, {"model": "<img src=x>\x1b[31m"})
    assert "<img" not in trace._repr_html_() and "\x1b" not in trace._repr_html_() + repr(trace) + str(trace)


def test_the_depth_of_a_deep_model_costs_no_more_than_its_lines() -> None:
    """Each cell is expanded once, though the ways to it double with every layer."""
    config = dataclasses.replace(CONFIGS["relu"], n_layer=8)
    trace = Trace(forward(config, weights(config), [[1, 2, 0]]))
    start = time.perf_counter()
    assert len(str(derive(trace, "logits[t=2,v=1]", depth=1000)).splitlines()) <= 40
    assert len(str(derive(trace, "logits[t=2,v=1]", depth=1000, most=None)).splitlines()) > 200
    assert time.perf_counter() - start < 5


def test_a_choice_tells_what_decided_it(abcd: Model) -> None:
    text = str(abcd.explain("A B", at="d.logits.via.nll[t=1,v=0]", target="C"))
    assert "targets[t=1] = 2  (t=1 B, the token C)" in text
    assert "mask[t=0,s=1] = 0" in str(abcd.explain("A B", at="blocks.0.attn.masked[t=0,s=1]"))
    config = CONFIGS["relu"]
    tape = forward(config, weights(config), [[1, 2, 0]], [[2, 1, 1]])
    tape.backward(tape.ref("loss"))
    closed = tuple(int(i) for i in np.argwhere(tape["blocks.0.mlp.up"] < 0)[0])
    root = derive(Trace(tape), f"d.blocks.0.mlp.up[{','.join(map(str, closed))}]", depth=0)
    assert "blocks.0.mlp.up" in [operand.name for operand in root.operands]


def test_a_layer_s_stream_is_not_said_to_be_made_of_itself() -> None:
    config = CONFIGS["gpt2"]
    trace = Trace(forward(config, weights(config), [[1, 2, 0]]))
    assert "X_mid[t,c] = X[t,c] + O[t,c]" in str(derive(trace, "blocks.1.resid_mid[t=2,c=1]", depth=0))


def test_aliases_are_explained_as_what_they_name(abcd: Model) -> None:
    root = abcd.explain("A B", at="blocks.0.resid_post[t=1,c=1]")
    assert root.address == "blocks.0.attn_out[t=1,c=1]"
    gradient = abcd.explain("A B", at="d.final_norm.out[t=1,c=1]", target="C")
    assert gradient.address == "d.blocks.0.attn_out[t=1,c=1]"


def test_data_holds_the_numbers_in_full(abcd: Model) -> None:
    data = abcd.explain("A B", at="probs[t=1,v=2]", depth=1).to_data()
    share = 1 / (1 + math.exp(-math.sqrt(2)))
    assert data["value"] == pytest.approx(0.5 / (1 + math.exp(1 - 2 * share)), rel=1e-14)
    assert data["tokens"] == {"t": "B", "v": "C"}
    assert data["operation"] == "softmax"
    assert [cell["at"] for cell in data["operands"][0]["also"]] == [f"logits[t=1,v={v}]" for v in (0, 1, 3)]
    assert "operands" not in data["operands"][0]["operands"][0], "depth 1 tells the logit, not what made it"


def test_a_long_sum_is_folded_exactly() -> None:
    config = CONFIGS["gpt2"]
    trace = Trace(forward(config, weights(config), [[1, 2, 0]]))
    text = str(derive(trace, "logits[t=2,v=1]", depth=0, top=2))
    assert re.search(rf"\[{config.d_model - 2} smaller terms\]", text)


def test_a_lesson_brings_its_own_words() -> None:
    tape = Tape()
    x = tape.describe(tape.parameter("x", 3.0), symbol="x", meaning="where we stand")
    y = tape.describe(tape.parameter("y", 4.0), symbol="y")
    squares = [tape(f"{ref.name}_squared", power, ref, exponent=2) for ref in (x, y)]
    f = tape.describe(tape("f", add, *squares), symbol="f", meaning="the height of the bowl")
    tape.backward(f)
    text = str(derive(Trace(tape), "f"))
    assert text.splitlines()[:3] == [
        "f = 25   the height of the bowl",
        "│  f = x_squared + y_squared",
        "│  = 9 + 16",
    ]
    assert "x = 3   parameter, where we stand" in text
    derivative = str(derive(Trace(tape), "d.x"))
    assert "= 2 · 3^1 · 1" in derivative
    assert derivative.startswith("d.x = 6   gradient of where we stand")


def test_masked_scores_print_as_minus_infinity(abcd: Model) -> None:
    text = str(abcd.explain("A B", at="blocks.0.attn.pattern[t=0,s=0]"))
    assert "= e^1.4142 / (e^1.4142 + e^(-∞))" in text


def test_softmax_that_would_overflow_is_explained_with_its_maximum() -> None:
    from pellucid.reference.ops.softmax import softmax

    tape = Tape()
    tape("p", softmax, tape.constant("s", [[900.0, 901.0]]))
    assert "= e^(900 - max(901, 900)) / (e^(900 - max(901, 900)) + e^(901 - max(901, 900)))" in str(
        derive(Trace(tape), "p[j=0]")
    )
