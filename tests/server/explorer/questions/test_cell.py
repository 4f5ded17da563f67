"""`cell` shows what `explain` prints: every number of the answer is the trace's, and every address opens."""

import dataclasses
import json
import math
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import AddressError, PellucidError, UsageError
from pellucid.base.formatting import format_number
from pellucid.config import ModelConfig
from pellucid.explanation.address import parse
from pellucid.explanation.derive import derive, explain
from pellucid.explanation.pieces import format_expression, split_sum
from pellucid.explanation.trace import Trace
from pellucid.parts import Part, kinds
from pellucid.reference import ops
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session
from tests.reference.models import weights
from tests.reference.test_ops import CASES, Case, backpropagated
from tests.small_choices import small

Answer = Mapping[str, Any]


@cache
def abcd() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True, update="adamw", lr=0.5))
    return session


def list_addresses(trace: Trace) -> list[str]:
    """Returns the address of every cell of every value."""
    return [
        trace.address(name, index)
        for name, value in trace.tape.values.items()
        for index in np.ndindex(value.shape)
    ]


def join(line: list[Any], digits: int = 5) -> str:
    """Returns a line as the page prints it: the sign of a number is in the text before it."""
    return "".join(p if isinstance(p, str) else format_number(abs(float(p["value"])), digits) for p in line)


def find_numbers(data: Any) -> Iterator[tuple[str, float]]:
    """Yields every address of an answer that stands beside a number."""
    if isinstance(data, dict):
        if isinstance(data.get("at"), str) and "value" in data:
            yield data["at"], float(data["value"])
        for value in data.values():
            yield from find_numbers(value)
    elif isinstance(data, list):
        for value in data:
            yield from find_numbers(value)


def is_equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def check_cell(session: Session, at: str, **more: Any) -> Answer:
    """Asks for a cell, and fails unless its answer is what the trace holds and `explain` prints."""
    trace = session.get_trace(None).trace
    found = session.ask("cell", at=at, **more)
    assert found["at"] == at and len(json.dumps(found)) < 500_000
    check_line(trace, found, **more)
    for address, number in find_numbers(found):
        cell = parse(trace, address)
        assert cell.cell is not None
        assert is_equal(number, float(trace.value(cell.name)[cell.cell])), address
    check_windows(session, found)
    for key in ("twin", "previous", "following"):
        assert found[key] is None or parse(trace, found[key]).cell is not None
    named = {entry["operand"] for entry in found["reads"]} - {None}
    assert named <= set(range(len(found["operands"])))
    assert found["can_edit"] == (found["why_not"] is None)
    return found


def check_line(trace: Trace, found: Answer, **more: Any) -> None:
    node = derive(trace, found["at"], depth=0, flatten=more.get("flatten", False), top=more.get("top", 6))
    if node.expression is None:
        assert found["line"] is None and not found["terms"]
        return
    printed = format_expression(node.expression)
    assert f"= {printed}" in str(node)
    if not found["terms"]:
        assert join(found["line"]) == printed and found["total"] is None
        return
    listed = split_sum(node.expression).sum
    assert listed is not None
    parts = [join(term["line"]) for term in found["terms"]]
    if found["folded"]:
        rest = format_number(float(found["rest"]), 5)
        parts.append(f"{rest} [{found['folded']:,} smaller term{'s' * (found['folded'] > 1)}]")
    assert bare(" + ".join(parts)) == bare(format_expression(listed))
    total = format_number(float(found["total"]), 5)
    assert bare(printed.replace(format_expression(listed), total, 1)) == bare(join(found["line"]))
    check_total(found)


def check_total(found: Answer) -> None:
    """The terms and the rest add up to the total."""
    terms = [float(term["value"]) for term in found["terms"]] + [float(found["rest"] or 0.0)]
    total = float(found["total"])
    if math.isfinite(total):
        assert math.fsum(terms) == pytest.approx(total, rel=1e-12, abs=1e-13 * max(map(abs, terms)))


def bare(text: str) -> str:
    """Returns a line without what depends on how long its sum is."""
    return text.replace("(", "").replace(")", "").replace(" + -", " - ")


def check_windows(session: Session, found: Answer) -> None:
    """The focus of each window is the number, and inside the marks."""
    views = [(found["stands"], found["value"])]
    for entry in found["reads"]:
        number = entry["operand"]
        views += [(entry, found["operands"][number]["value"])] if entry["focus"] is not None else []
        top, bottom, left, right = entry["marks"]
        assert 0 <= top <= bottom < 9 and 0 <= left <= right < 8
    for view, number in views:
        row, col = view["focus"]
        window = session.ask("value", at=view["window"])
        assert is_equal(float(window["numbers"][row][col]), float(number)), view
        if "marks" in view:
            marked = [view["marks"], *view["more_marks"]]
            assert any(t <= row <= b and x <= col <= y for t, b, x, y in marked), view


def test_every_cell_of_a_run_with_a_target_and_an_update_is_what_explain_prints() -> None:
    session = abcd()
    addresses = list_addresses(session.get_trace(None).trace)
    assert len(addresses) > 390
    phases = {check_cell(session, at)["phase"] for at in addresses}
    assert phases == {None, "fwd", "bwd", "upd"}


def test_few_terms_leave_the_exact_rest() -> None:
    session = abcd()
    for at in list_addresses(session.get_trace(None).trace)[::7]:
        check_cell(session, at, top=1)
        check_cell(session, at, top=2)


FAMILY = {
    entry.name: entry.type.family
    for entry in dataclasses.fields(ModelConfig)
    if isinstance(entry.type, type) and issubclass(entry.type, Part)
}
CHOICES = [(field, kind) for field, family in FAMILY.items() for kind in kinds(family)]
BASE = {"vocab_size": 5, "context_length": 12, "n_layer": 2, "n_head": 2, "d_model": 24, "d_ff": 20}
IDS, TARGETS = [[1, 3, 1, 4], [0, 2, 4, 4]], [[3, -100, 2, 1], [2, 4, 0, 0]]


@pytest.mark.rotating
@pytest.mark.parametrize(("field", "kind"), CHOICES)
def test_cells_of_every_variant_are_what_explain_prints(field: str, kind: str) -> None:
    config = ModelConfig.from_dict(BASE | {field: small(FAMILY[field], kind)})
    tape = forward(config, weights(config), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    update(tape, "sgd", lr=0.1)
    session = Session(trace=Trace(tape))
    rng = random.Random(kind)
    for name in rng.sample(list(tape.values), 24):
        index = tuple(rng.randrange(size) for size in tape[name].shape)
        found = check_cell(session, Trace(tape).address(name, index), flatten=rng.random() < 0.5)
        assert found["why_not"]


@pytest.mark.rotating
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_cells_of_every_operation_are_what_explain_prints(case: Case) -> None:
    tape = backpropagated(case)
    session = Session(trace=Trace(tape))
    for name, step in tape.steps.items():
        for top in (1, 6):
            index = tuple(size - 1 for size in tape[step.name].shape)
            check_cell(session, Trace(tape).address(name, index), top=top)


@pytest.mark.parametrize("optimizer", kinds("optimizers"))
def test_cells_of_every_update_are_what_explain_prints(optimizer: str) -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True, update=optimizer, lr=0.5, steps=2))
    tape = session.get_trace(None).trace.tape
    for name in random.Random(0).sample([name for name in tape.steps if "@" in name], 16):
        index = tuple(size - 1 for size in tape[name].shape)
        check_cell(session, session.get_trace(None).trace.address(name, index))


def test_the_axes_of_a_sum_are_named_with_their_tokens() -> None:
    session = abcd()

    def where(at: str) -> list[Any]:
        return [term["where"] for term in session.ask("cell", at=at, top=1)["terms"]]

    assert where("probs[t=1,v=2]") == [[["v", 1, "B"]]]
    assert where("logits[t=1,v=2]") == [[["c", 1, None]]]
    assert where("d.embed.weight[v=1,c=0]") == [[["t", 1, "B"]]] or not where("d.embed.weight[v=1,c=0]")
    names = [term["where"] for term in session.ask("cell", at="d.embedded[t=1,c=0]")["terms"]]
    assert names[0] == [["name", "d.embedded.via.blocks.0.attn.v", None]]


def test_a_cell_and_its_gradient_are_twins() -> None:
    session = abcd()
    assert session.ask("cell", at="embed.weight[v=1,c=0]")["twin"] == "d.embed.weight[v=1,c=0]"
    assert session.ask("cell", at="d.embed.weight[v=1,c=0]")["twin"] == "embed.weight[v=1,c=0]"
    part = "d.embedded.via.blocks.0.attn.v[t=1,c=0]"
    assert session.ask("cell", at=part)["twin"] == "embedded[t=1,c=0]"
    assert session.ask("cell", at="ids[t=0]")["twin"] is None


def test_steps_lead_on_in_program_order() -> None:
    session = abcd()
    steps = list(session.get_trace(None).trace.tape.steps)
    seen, at = [], f"{steps[0]}[t=0,c=0]"
    while at:
        found = session.ask("cell", at=at)
        assert found["step"] == [len(seen), len(steps)]
        seen.append(found["name"])
        at = found["following"]
    assert seen == steps


def test_an_alias_opens_the_value_that_it_names() -> None:
    found = abcd().ask("cell", at="blocks.0.resid_pre[t=1,c=0]")
    assert found["name"] == "embedded" and found["at"] == "embedded[t=1,c=0]"


def test_an_id_opens_to_its_token_and_selects_the_row_of_its_embedding() -> None:
    session = abcd()
    assert session.ask("cell", at="ids[t=1]")["token"] == "B"
    found = session.ask("cell", at="embedded[t=1,c=0]")
    assert [operand["at"] for operand in found["operands"]] == ["embed.weight[v=1,c=0]", "ids[t=1]"]


def test_a_number_that_is_edited_says_what_its_formula_gives() -> None:
    def make(edits: Any) -> Tape:
        tape = Tape(edits=edits)
        tape("y", ops.find_op("power"), tape.parameter("x", [2.0, 3.0]), exponent=2)
        return tape

    session = Session(trace=Trace(make(None)))
    first = session.get_trace(None)
    held = session._hold(Trace(make({"y": {1: 5.0}})), None, first.id)
    found = session.ask("cell", trace=held.id, at="y[i=1]")
    assert (found["value"], found["original"], found["op"]) == (5.0, 9.0, "put")
    assert found["edited"] == {"at": "y.computed[i=1]", "value": 9.0}
    assert (found["reads"], found["operands"], found["line"]) == ([], [], [{"value": 5.0}])
    other = session.ask("cell", trace=held.id, at="y[i=0]")
    assert (
        other["edited"] is None
        and other["original"] is None
        and other["operands"][0]["at"] == "y.computed[i=0]"
    )


def test_an_answer_has_the_number_before_the_edits_where_its_bits_were_others() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    for at, value, wanted in (("embed.weight[v=0,c=1]", -0.0, 0.0), ("mask[t=1,s=1]", 0.0, 1.0)):
        assert session.ask("edit", trace="t1", at=at, value=value)
        found = session.ask("cell", at=at)
        assert (str(found["value"]), str(found["original"])) == (str(value), str(wanted))
    session.ask("edit", at="blocks.0.attn.pattern[t=1,s=1]", value=0.25)
    window = session.ask("value", at="blocks.0.attn.pattern.computed")
    assert window["changed"]
    for r in range(2):
        for c in range(2):
            found = session.ask("cell", at=f"blocks.0.attn.pattern.computed[t={r},s={c}]")
            before = session.ask("cell", trace="t1", at=f"blocks.0.attn.pattern[t={r},s={c}]")["value"]
            assert found["original"] == (before if [r, c] in window["changed"] else None)


def test_every_number_of_a_model_but_those_that_select_can_be_edited() -> None:
    session = abcd()
    can = {name: session.ask("cell", at=at) for name, at in EDITABLE.items()}
    assert [name for name, found in can.items() if not found["can_edit"]] == ["ids"]
    for name, at in EDITABLE.items():
        if name != "ids":
            value = 0.0 if name == "leaf" else 0.125  # the leaf is a mask
            answer = session.ask("edit", trace="t1", at=at, value=value)
            edited = session.ask("cell", trace=answer["trace"], at=at)
            assert edited["value"] == value != edited["original"] == can[name]["value"]
            if is_step := name not in ("param", "leaf"):
                assert edited["edited"]["value"] == can[name]["value"]
                computed = session.ask("cell", trace=answer["trace"], at=edited["edited"]["at"])
                assert not computed["can_edit"] and computed["formula"] != can[name]["formula"]
            assert is_step == (edited["edited"] is not None)
    finished = Session(trace=session.get_trace(None).trace)
    assert "finished run" in finished.ask("cell", at="probs[t=1,v=2]")["why_not"]


EDITABLE = {
    "param": "embed.weight[v=0,c=0]",
    "act": "probs[t=1,v=2]",
    "grad": "d.logits[t=1,v=2]",
    "update": "embed.weight@1[v=0,c=0]",
    "ids": "ids[t=0]",
    "leaf": "mask[t=0,s=0]",
}


def test_the_numbers_of_a_fast_engine_are_shown_as_recorded_with_a_note() -> None:
    config = ModelConfig.from_dict(BASE)
    tape = forward(config, weights(config), [[1, 3, 1, 4]])
    for name, value in tape.values.items():
        if value.dtype.kind == "f":
            tape.values[name] = value.astype(np.float32).astype(np.float64)
    session = Session(trace=Trace(tape, {"path": "eager", "dtype": "float32"}))
    notes = 0
    for name in tape.steps:
        found = check_cell(session, Trace(tape).address(name, tuple(size - 1 for size in tape[name].shape)))
        notes += found["note"] is not None
        if found["note"]:
            assert "eager" in found["note"] and "float32" in found["note"]
    assert notes < len(tape.steps) / 4


def test_a_trace_of_the_eager_engine_is_answered() -> None:
    from pellucid.model import load

    session = Session(trace=load("abcd").trace("A B", target="C", backward=True, path="eager"))
    for at in list_addresses(session.get_trace(None).trace)[::5]:
        check_cell(session, at)


def test_several_prompts_are_labelled_each_with_its_own_tokens() -> None:
    from pellucid.model import load

    session = Session(trace=load("abcd").trace(["A B", "C D"]))
    places = check_cell(session, "probs[b=1,t=1,v=2]")["places"]
    assert [place["label"] for place in places] == ["C D", "D", "C"]


def test_an_attribution_opens_like_any_other_number(tmp_path: Path) -> None:
    from pellucid.interpretability.look import trace_look
    from pellucid.model import load

    trace_look(load("abcd"), "A B", tmp_path / "t.json", token="C")
    session = Session.open(str(tmp_path / "t.json"))
    assert check_cell(session, "attribution.sum")["operands"]


def test_a_chain_of_additions_is_one_sum_on_request() -> None:
    config = ModelConfig.from_dict(BASE)
    session = Session(trace=Trace(forward(config, weights(config), [[1, 3, 1, 4]])))
    at = "blocks.1.resid_post[t=3,c=5]"
    plain, flat = check_cell(session, at), check_cell(session, at, flatten=True)
    assert (plain["can_flatten"], plain["is_flattened"], plain["note"]) == (True, False, None)
    assert flat["is_flattened"] and "order" in flat["note"] and flat["total"] == flat["value"]
    assert [term["where"][0][1] for term in flat["terms"]] == [
        o["at"].partition("[")[0] for o in flat["operands"]
    ]


def test_of_a_row_from_which_an_operation_selects_only_what_it_reads_is_marked() -> None:
    tape = Tape()
    angles = tape.constant("angles", np.ones((1, 1, 1, 2)))
    tape("y", ops.find_op("rotate"), tape.constant("x", np.ones((1, 1, 1, 4))), angles, layout="halves")
    reads = {
        entry["name"]: entry for entry in Session(trace=Trace(tape)).ask("cell", at="y[0,0,0,1]")["reads"]
    }
    assert [reads["x"]["marks"], *reads["x"]["more_marks"]] == [[0, 0, 1, 1], [0, 0, 3, 3]]
    assert (reads["angles"]["marks"], reads["angles"]["more_marks"]) == ([0, 0, 1, 1], [])
    embedded, nll = (
        abcd().ask("cell", at=at)["reads"][0]["marks"] for at in ("embedded[t=1,c=0]", "nll[t=1]")
    )
    assert (embedded, nll) == ([1, 1, 0, 0], [1, 1, 2, 2])


def test_parts_that_lie_apart_are_marked_each() -> None:
    tape = Tape()
    tape("y", ops.find_op("einsum"), tape.constant("x", np.arange(40.0)), spec="(hd)->d", h=4)
    tape("z", ops.find_op("einsum"), tape.constant("w", np.arange(15.0)), spec="(hd)->d", h=5)
    session = Session(trace=Trace(tape))
    found = session.ask("cell", at="y[i=3]")["reads"]
    assert [(entry["window"], entry["marks"]) for entry in found] == [
        ("x[i=32]", [0, 0, 1, 1]),
        ("x[i=0]", [0, 0, 3, 3]),
        ("x[i=8]", [0, 0, 5, 5]),
        ("x[i=16]", [0, 0, 7, 7]),
    ]
    assert [entry["marks"] for entry in session.ask("cell", at="z[i=1]")["reads"]] == [[0, 0, 0, 6]]
    near = session.ask("cell", at="y[i=3]", cols=32)["reads"]
    assert [len(entry["more_marks"]) for entry in near] == [0, 2]


@pytest.mark.parametrize(
    "at",
    [
        "prob[1,2]",
        "probs[9,9]",
        "probs",
        "d.probs[0,0]",
        "probs[t=1,x=2]",
        "",
        "[[",
        "probs[t=D,v=2]",
        "x" * 500,
    ],
)
def test_a_wrong_address_gets_the_message_of_explain(at: str) -> None:
    trace = abcd().get_trace(None).trace
    with pytest.raises(PellucidError) as asked:
        abcd().ask("cell", at=at)
    with pytest.raises(PellucidError) as explained:
        derive(trace, at)
    assert type(asked.value) is type(explained.value) and str(asked.value) == str(explained.value)
    assert isinstance(asked.value, AddressError | UsageError)


def test_a_table_is_not_a_cell() -> None:
    assert explain(abcd().get_trace(None).trace, "probs") is not None
    with pytest.raises(AddressError, match="more than one number"):
        abcd().ask("cell", at="probs")


@pytest.mark.parametrize("wrong", [{"top": 0}, {"top": 129}, {"rows": 33}, {"flatten": 3}, {"cells": 1}])
def test_parameters_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        abcd().ask("cell", at="probs[t=1,v=2]", **wrong)
