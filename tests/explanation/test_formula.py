"""A formula is true: filled with numbers it gives the operation's own result. It is a tree, written as text,
MathML and LaTeX."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.explanation.derive import derive
from pellucid.explanation.formula import Formula, build_formula
from pellucid.explanation.notation import Fraction, Node, Power, Reduction, Root, Symbol, Words, parse
from pellucid.explanation.trace import Trace
from pellucid.explanation.typeset import write_text
from pellucid.reference.op import Op
from pellucid.reference.ops import find_op, table
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, updated, weights

ROW = np.random.default_rng(0).normal(size=(2, 3))
OTHER = np.random.default_rng(1).normal(size=(2, 3))
ONE = np.abs(np.random.default_rng(2).normal(size=(2, 1))) + 0.5
MASK = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
TARGETS = np.array([2, -100])
CURVES = ("relu", "relu_squared", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "elu_plus_one")
ADAMW = {"t": 3, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "decay": 0.2}

CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "subtract": ([ROW, OTHER], {}),
    "power": ([abs(ROW)], {"exponent": 1.5}),
    "power_back": ([abs(ROW), OTHER], {"exponent": 1.5}),
    "softmax": ([ROW], {}),
    "softmax_back": ([ROW, OTHER], {}),
    "logsumexp": ([ROW], {}),
    "logsumexp_back": ([ROW, ONE[:, 0], OTHER[:, 0]], {}),
    "rstd": ([ROW], {"eps": 0.3}),
    "rstd_back": ([ROW, ONE, OTHER[:, :1]], {"width": 3}),
    "mask": ([ROW, MASK], {}),
    "cross_entropy_lse_back": ([ROW[:, 0], TARGETS], {}),
    "cross_entropy_logits_back": ([ROW[:, 0], TARGETS], {"width": 3}),
    "mean_squared_error": ([ROW, OTHER], {"samples": 2}),
    "mean_squared_error_back": ([ROW, OTHER, np.array(0.7)], {"samples": 2}),
    "sgd": ([ROW, OTHER], {"lr": 0.3}),
    "accumulate": ([ROW, OTHER], {"beta": 0.9}),
    "clip_factor": ([np.array(3.0)], {"limit": 2.0}),
    "adamw": ([ROW, OTHER, abs(OTHER)], ADAMW),
    "adam": ([ROW, OTHER, abs(OTHER)], {key: value for key, value in ADAMW.items() if key != "decay"}),
    "muon": ([ROW, OTHER], {"lr": 0.1, "scale": 1.5, "decay": 0.2}),
    "divide_by_norm": ([ROW, np.array(3.0)], {"eps": 1e-7}),
    "lerp": ([ROW, OTHER], {"share": 0.3}),
    "scaled_sum": ([ROW, OTHER], {"alpha": 0.3}),
    "soft_cap": ([ROW], {"limit": 2.0}),
    "soft_cap_back": ([ROW, OTHER], {"limit": 2.0}),
    "neg_log_probs": ([ROW, ONE[:, 0]], {}),
    "l1_normalize": ([abs(ROW)], {}),
    "l1_normalize_back": ([abs(ROW), OTHER, ROW], {}),
    "safe_divide": ([ROW, ONE], {}),
    "safe_divide_back": ([ROW, OTHER, ONE], {}),
    "shifted_exp": ([ROW, ONE], {}),
    "running_lse": ([ONE, ONE + 1], {}),
    "temper": ([ROW], {"temperature": 0.7}),
    "penalize": ([ROW, MASK], {"penalty": 1.3}),
    "keep_at_least": ([ROW, OTHER, ONE - 1], {}),
    "keep_below": ([ROW, OTHER], {"bound": 0.2}),
    "scaled_max": ([ROW], {"share": 0.3}),
    "minimum": ([ROW], {"limit": 0.2}),
    "typicality": ([abs(ROW), ONE], {}),
    "absolute": ([ROW], {}),
    "newton": ([ROW, OTHER, abs(OTHER)], {"lr": 0.5}),
    **{name: ([ROW], {}) for name in CURVES},
    **{f"{name}_back": ([ROW, OTHER], {}) for name in CURVES},
}
IN_WORDS = {
    "take", "scatter", "cross_entropy", "narrow", "narrow_back", "einsum", "random_features",
    "random_features_back", "tiled_output", "tiled_output_scores_back", "tiled_output_values_back",
    "global_norm", "frobenius_norm", "same_segment", "entropy", "kth_largest", "draw", "argmax", "select",
    "bin_index", "bin_sum", "round_activations",
}  # fmt: skip
"""Their formulas say which cell is meant, or sum over a letter of their own; tested by example below, or with
the attention that uses them."""

FUNCTIONS = {
    "exp": np.exp, "sqrt": np.sqrt, "ln": np.log, "tanh": np.tanh, "where": np.where, "inf": np.inf,
    "max": np.maximum, "min": np.minimum, "sign": np.sign, "abs": np.abs,
    "L": lambda x: x.max(-1, keepdims=True),
    "S": lambda x: x.sum(-1, keepdims=True), "A": lambda x: x.sum(), "M": lambda x: x.mean(-1, keepdims=True),
    "σ": lambda x: 1 / (1 + np.exp(-x)), "Φ": np.vectorize(lambda x: (1 + math.erf(x / math.sqrt(2))) / 2),
    "φ": lambda x: np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi),
    "u": lambda x: math.sqrt(2 / math.pi) * (x + 0.044715 * x**3),
    "w": lambda x: math.sqrt(2 / math.pi) * (1 + 0.134145 * x**2),
}  # fmt: skip


def read(op: Op, arrays: list[np.ndarray], attrs: dict[str, Any]) -> Any:
    """The right-hand side of the template, as a person would compute it."""
    names = [f"x{i}" for i in range(len(arrays))]
    rows = {f"r{i}": name for i, name in enumerate(names)}
    assert isinstance(op.formula, str)
    text = op.formula.format(*names, y="y", row="j", **rows, **attrs)
    text = text.partition(" = ")[2].partition(",  ")[0]
    text = re.sub(r"(.+) if (.+) (=|<|>|≥) (.+), else (.+)", r"where(\2 \3 \4, \1, \5)", text)
    text = text.replace(" = ", " == ").replace("≥", ">=").replace("-∞", "-inf")
    for mark, function, until in (
        ("Σ_j ", "S", r"[)]|$"),
        ("mean_j ", "M", r" \+"),
        ("max_j ", "L", r"[)]|$"),
        ("Σ ", "A", r" /"),
    ):
        text = re.sub(rf"{mark}(.+?)(?={until})", rf"{function}(\1)", text)
    text = re.sub(r"e\^(\([^()]*\)|[\w.]+)", r"exp(\1)", text).replace("√", "sqrt").replace("ln S", "ln(S")
    text += ")" * (text.count("(") - text.count(")"))
    for old, new in (("²", "**2"), ("³", "**3"), ("^", "**"), ("·", "*")):
        text = text.replace(old, new)
    per_row = op.name in ("logsumexp_back", "cross_entropy_logits_back", "neg_log_probs")
    values = {
        name: array[:, None] if per_row and array.ndim == 1 else array
        for name, array in zip(names, arrays, strict=True)
    }
    return eval(text, {"__builtins__": {}}, FUNCTIONS | values | {"v": np.arange(3)})


@pytest.mark.parametrize("name", CASES)
def test_a_formula_gives_the_operation_s_result(name: str) -> None:
    arrays, attrs = CASES[name]
    wanted = find_op(name).forward(*arrays, **attrs)
    got = np.asarray(read(find_op(name), arrays, attrs))
    got = got.reshape(wanted.shape) if got.size == wanted.size else got
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_every_formula_that_is_a_template_is_read() -> None:
    templates = {name for name, op in table().items() if isinstance(op.formula, str)}
    assert templates - IN_WORDS == set(CASES)


WITH_THIS_ID = "over the positions with this id"


def message(config: str, at: str, backward: bool = False) -> str:
    tape = forward(CONFIGS[config], weights(CONFIGS[config]), [[1, 2, 0]], [[2, 1, -100]])
    if backward:
        tape.backward(tape.ref("loss"))
    trace = Trace(tape)
    root = derive(trace, at, depth=0)
    assert root.step is not None
    return build_formula(trace, root.step, root.index)


@pytest.mark.parametrize(
    ("config", "at", "wanted"),
    [
        ("gpt2", "embedded[t=1,c=0]", "X_E[t,c] = E[v,c] in row id[t]"),
        ("gpt2", "blocks.0.attn_norm.mean[t=1]", "μ[t] = Σ_c X_0[t,c] / 4"),
        ("gpt2", "blocks.0.attn_norm.rstd[t=1]", "r[t] = 1 / √(mean_c' X̄[t,c']² + 1e-05)"),
        ("gpt2", "blocks.0.attn.q[1,2,1]", "Q[h,t,d] = Σ_c Y[t,c] W_Q[c,hd] + b_Q[hd]"),
        ("gpt2", "blocks.0.attn.scores[1,2,1]", "S[h,t,s] = Σ_d Q[h,t,d] K[h,s,d] / √2"),
        ("gpt2", "blocks.0.attn.z[1,2,1]", "Z[h,t,d] = Σ_s P[h,t,s] V[h,s,d]"),
        ("gpt2", "blocks.0.attn_out[2,1]", "O[t,c] = Σ_hd Z[h,t,d] W_O[hd,c] + b_O[c]"),
        ("gpt2", "blocks.0.mlp_out[2,1]", "O_F[t,c] = Σ_f A[t,f] W_2[f,c] + b_2[c]"),
        ("llama", "blocks.0.attn.scores[3,2,1]", "S[h,t,s] = Σ_d Q'[h,t,d] K'[k,s,d] / 2,  h = kg"),
        ("llama", "blocks.0.attn.q_rot[1,2,0]",
         "Q'[h,t,d] = Q[h,t,d] · cos(θ[t,0]) - Q[h,t,2] · sin(θ[t,0])"),
        ("llama", "blocks.0.attn.k_rot[1,2,3]",
         "K'[k,s,d] = K[k,s,d] · cos(θ[s,1]) + K[k,s,1] · sin(θ[s,1])"),
        ("llama_pairs", "blocks.0.attn.scores[1,2,1]", "S[h,t,s] = Σ_d Q'[h,t,d] K'[s,d] / 2"),
        ("llama", "blocks.0.mlp.hidden[2,1]", "U_H[t,f] = A[t,f] U[t,f]"),
        ("bare", "blocks.0.attn_out[2,1]", "O[t,c] = Z[h,t,d],  c = hd"),
        ("llama", "loss", "ℒ = Σ_t nll[t] / 2"),
    ],
)  # fmt: skip
def test_a_formula_goes_by_the_axes_of_the_glossary(config: str, at: str, wanted: str) -> None:
    assert message(config, at) == wanted


@pytest.mark.parametrize(
    ("config", "at", "wanted"),
    [
        ("gpt2", "d.blocks.0.attn_norm.mean[t=1]", "dμ[t] = Σ_c dX̄[t,c] · (-1)"),
        ("gpt2", "d.blocks.0.attn.q_proj.weight[1,2]", "dW_Q[c,hd] = Σ_t dQ[h,t,d] Y[t,c]"),
        ("gpt2", "d.blocks.0.attn.k[1,2,1]", "dK[k,s,d] = Σ_t dS[k,t,s] Q[k,t,d] / √2"),
        ("llama", "d.blocks.0.attn.v[1,2,1]", "dV[k,s,d] = Σ_gt dZ[h,t,d] P[h,t,s],  h = kg"),
        ("bare", "d.embed.weight.via.embedded[1,1]", "dE|embedded[v,c] = Σ dX_E[t,c] " + WITH_THIS_ID),
    ],
)  # fmt: skip
def test_the_formula_of_a_gradient_too(config: str, at: str, wanted: str) -> None:
    assert message(config, at, backward=True) == wanted


def test_the_formula_of_the_segment_mask_compares_a_query_with_a_key() -> None:
    config = CONFIGS["gpt2"]
    trace = Trace(forward(config, weights(config), [[1, 2, 0]], segments=np.array([[0, 0, 1]])))
    made = build_formula(trace, trace.tape.steps["same_segment"], (0, 0, 2, 1))
    assert made == "same[t,s] = 1 if seg[t] = seg[s], else 0"


@pytest.mark.parametrize(
    ("index", "wanted"), [((0,), "x[i] = 0.1"), ((1,), "x[i] = -1e-05"), ((2,), "x[i] = x°[i]")]
)
def test_the_formula_of_an_edited_cell_is_its_number(index: tuple[int], wanted: str) -> None:
    tape = Tape(edits={"x": {0: 0.1, 1: -1e-5}})
    tape.describe(tape("x", find_op("absolute"), tape.constant("y", [1.0, 2.0, 3.0])), axes="i")
    made = build_formula(Trace(tape), tape.steps["x"], index)
    assert made == wanted
    assert not any(isinstance(node, Words) for node in nodes(made.tree))
    ElementTree.fromstring(made.to_mathml())


def test_letters_of_one_place_are_left_out() -> None:
    tape = Tape()
    x = tape.describe(tape.constant("x", [[1.0, 2.0]]), axes="i j", symbol="x")
    y = tape.describe(tape("y", find_op("einsum"), x, spec="ab->a"), axes="i", symbol="y")
    assert build_formula(Trace(tape), tape.steps[y.name], (0,)) == "y = Σ_j x[j]"


# ---- as a tree

TEMPLATES = {
    name: op.formula for name, op in table().items() if isinstance(op.formula, str) and name != "einsum"
}
MATHML = "{http://www.w3.org/1998/Math/MathML}"


def nodes(node: Any) -> Iterator[Node]:
    if isinstance(node, tuple):
        for part in node:
            yield from nodes(part)
    elif isinstance(node, Node):
        yield node
        yield from nodes(tuple(getattr(node, entry.name) for entry in fields(node)))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_read_as_a_tree_and_written_as_it_was(name: str) -> None:
    """A template outside the notation would be plain words, and these have none but English ones."""
    tree = parse(TEMPLATES[name])
    assert write_text(tree) == TEMPLATES[name]
    words = "".join(node.text for node in nodes(tree) if isinstance(node, Words))
    assert words.isalpha() if name in IN_WORDS and words else not words


def test_a_formula_that_is_not_in_the_notation_is_words_around_its_values() -> None:
    template = "{y} := {0} ⊗ {1}"
    assert write_text(parse(template)) == template
    assert [type(node).__name__ for node in nodes(parse(template))].count("Slot") == 3


@pytest.fixture(scope="module", params=CONFIGS)
def formulas(request: pytest.FixtureRequest) -> list[Formula]:
    """Every formula of a model's forward pass, backward pass and update."""
    trace = Trace(updated(CONFIGS[request.param]))
    last = {name: tuple(size - 1 for size in value.shape) for name, value in trace.tape.values.items()}
    return [build_formula(trace, step, last[name]) for name, step in trace.tape.steps.items()]


def test_mathml_is_well_formed_and_keeps_every_symbol(formulas: list[Formula]) -> None:
    for made in formulas:
        root = ElementTree.fromstring(made.to_mathml())
        assert root.tag == f"{MATHML}math" and len(root) == 1
        tags, tree = {element.tag.removeprefix(MATHML) for element in root.iter()}, list(nodes(made.tree))
        kinds = {Fraction: "mfrac", Power: "msup", Root: "msqrt"}
        assert all(tag in tags for kind, tag in kinds.items() if any(isinstance(n, kind) for n in tree))
        if any(isinstance(node, Reduction) and node.index for node in tree):
            assert "munder" in tags
        shown = "".join(root.itertext())
        for node in tree:
            if isinstance(node, Symbol) and node.text.isalpha() and node.text.isascii():
                assert node.text.removeprefix("d" * node.is_gradient) in shown, made


CHILDREN = {"mfrac": 2, "msup": 2, "msub": 2, "munder": 2, "mover": 2, "msubsup": 3}
ATTRIBUTES = ({}, {"display": "block"}, {"accent": "true"}, {"width": "0.25em"})
ELEMENTS = {"math", "mrow", "mi", "mn", "mo", "mtext", "msqrt", "mtable", "mtr", "mtd", "mspace", *CHILDREN}


def check_element(tree: Any) -> None:
    """Fails unless nested lists are known MathML elements with as many children as they need."""
    name, attributes, *children = tree
    assert name in ELEMENTS and attributes in ATTRIBUTES
    assert len(children) == CHILDREN.get(name, len(children))
    if name in ("mi", "mn", "mo", "mtext"):
        assert len(children) == 1 and isinstance(children[0], str)
    else:
        for child in children:
            check_element(child)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_tree_of_known_mathml_elements(name: str) -> None:
    check_element(Formula(parse(TEMPLATES[name])).to_mathml_tree())


def test_the_mathml_tree_of_a_step_is_what_its_text_says(formulas: list[Formula]) -> None:
    def to_lists(element: ElementTree.Element) -> list[Any]:
        return [
            element.tag.removeprefix(MATHML),
            element.attrib,
            *(element.text or []),
            *map(to_lists, element),
        ]

    for made in formulas:
        tree = made.to_mathml_tree()
        check_element(tree)
        assert json.loads(json.dumps(tree)) == tree
        texts = [node.text for node in nodes(made.tree) if isinstance(node, Words)]
        assert not any(set(text) & set("{}[]=_^") for text in texts), made
        assert to_lists(ElementTree.fromstring(made.to_mathml())) == _split_texts(tree)


def _split_texts(tree: Any) -> list[Any]:
    """Returns the tree with each text as a list of its characters, as an XML reader's `text` is spread."""
    name, attributes, *children = tree
    texts = [char for child in children if isinstance(child, str) for char in child]
    return [name, attributes, *texts, *(_split_texts(child) for child in children if isinstance(child, list))]


def test_latex_is_balanced(formulas: list[Formula]) -> None:
    for made in formulas:
        latex = made.to_latex()
        bare = re.sub(r"\\[{}]", "", latex)
        depth = 0
        for char in bare:
            depth += {"{": 1, "}": -1}.get(char, 0)
            assert depth >= 0, latex
        assert depth == 0, latex
        assert latex.count(r"\left") == latex.count(r"\right") and latex.count(r"\begin") == latex.count(
            r"\end"
        )
        assert "²" not in latex and "Σ" not in latex and "√" not in latex


def test_softmax_as_mathml_and_latex() -> None:
    tape = Tape()
    tape.describe(tape("p", find_op("softmax"), tape.constant("s", [[1.0, 2.0], [0.0, 1.0]])), "t s", "P")
    made = build_formula(Trace(tape), tape.steps["p"], (0, 0))
    assert made == "P[t,s] = e^s[t,s] / Σ_j' e^s[t,j']"
    assert made.to_latex() == r"P_{t,s} = \frac{{e}^{s_{t,s}}}{\sum_{j^{\prime}} {e}^{s_{t,j'}}}"
    fraction = ElementTree.fromstring(made.to_mathml()).find(f".//{MATHML}mfrac")
    assert fraction is not None and [child.tag for child in fraction] == [f"{MATHML}msup", f"{MATHML}mrow"]
    assert fraction[1][0].tag == f"{MATHML}munder"


def test_names_from_elsewhere_are_escaped() -> None:
    tape = Tape()
    x = tape.describe(tape.constant("x", [1.0, 2.0]), "<b>", "<i>&{")
    tape("y", find_op("sgd"), x, x, lr=0.5)
    made = build_formula(Trace(tape), tape.steps["y"], (0,))
    ElementTree.fromstring(made.to_mathml())
    assert "<i>" not in made.to_mathml() and r"\&\{" in made.to_latex()
