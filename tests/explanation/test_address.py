"""Addresses by place or by letter, and errors that show what is there."""

from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation.address import Address, parse
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape


@pytest.fixture(scope="module")
def trace() -> Trace:
    return pellucid.load("abcd").trace("A B", target="C", backward=True)


@pytest.mark.parametrize(
    "address",
    [
        "probs[0,1,2]",
        "probs[1,2]",
        "probs[t=1,v=2]",
        "probs[v=2,t=1]",
        "probs[b=0,v=2,t=1]",
        " probs [ t = 1 , v =2 ] ",
    ],
)
def test_all_spellings_name_the_same_cell(trace: Trace, address: str) -> None:
    assert parse(trace, address) == Address("probs", (0, 1, 2))
    assert parse(trace, address).cell == (0, 1, 2)


def test_a_name_alone_is_the_whole_value_and_a_single_number_its_cell(trace: Trace) -> None:
    assert parse(trace, "probs").cell is None
    assert parse(trace, "loss") == Address("loss", ())
    assert parse(trace, "blocks.0.resid_pre[1,0]") == Address("embedded", (0, 1, 0))
    assert parse(trace, "unembed.weight@0[2,1]") == Address("unembed.weight", (2, 1))


@pytest.mark.parametrize(
    ("address", "index"),
    [
        ("probs[t=1]", (0, 1, None)),
        ("probs[v=2]", (0, None, 2)),
        ("probs[1]", (0, 1, None)),
        ("probs[:,2]", (0, None, 2)),
        ("probs[]", (0, None, None)),
        ("probs[t=:,v=2]", (0, None, 2)),
    ],
)
def test_an_axis_that_is_not_given_is_whole(
    trace: Trace, address: str, index: tuple[int | None, ...]
) -> None:
    assert parse(trace, address) == Address("probs", index)


SENTENCE = ["The", "Ġcat", "'t", "Ġit", ",", "Ġ[", "it", "Ġwas"]


@pytest.fixture(scope="module")
def sentence() -> Trace:
    tape = Tape()
    tape.constant("blocks.0.attn.pattern", np.zeros((1, 2, 8, 8)))
    return Trace(tape, {}, {"t": SENTENCE, "s": SENTENCE})


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("cat", 1),
        ("·cat", 1),
        (" cat", 1),
        ("Ġcat", 1),
        ('" cat"', 1),
        ("The", 0),
        (" The", 0),
        ("'t", 2),
        ('","', 4),
        ('" ["', 5),
        ("·it", 3),
        ('"it"', 6),
        ('"·it"', 3),
    ],
)
def test_a_place_is_found_by_the_text_of_its_token(sentence: Trace, given: str, place: int) -> None:
    found = parse(sentence, f"blocks.0.attn.pattern[h=1,t={given},s={given}]")
    assert found.index == (0, 1, place, place)


def test_a_token_that_stands_in_several_places_asks_for_the_number(sentence: Trace) -> None:
    assert "t=3 Ġit, t=6 it" in refused(sentence, "blocks.0.attn.pattern[t=it]")


def test_a_token_that_is_not_there_gets_the_nearest(sentence: Trace) -> None:
    assert "t=1 Ġcat" in refused(sentence, "blocks.0.attn.pattern[t=cats]")
    assert "The Ġcat" in refused(sentence, "blocks.0.attn.pattern[t=zzzzzz]")
    assert "t=1 Ġcat" in refused(sentence, 'blocks.0.attn.pattern[t="cat"]')


def test_positions_that_began_in_a_cache_align_at_the_end() -> None:
    tape = Tape()
    tape.constant("blocks.0.attn.pattern", np.zeros((1, 2, 2, 8)))
    late = Trace(tape, {}, {"t": SENTENCE, "s": SENTENCE})
    assert parse(late, "blocks.0.attn.pattern[h=0,t=was,s=was]").index == (0, 0, 1, 7)


def refused(trace: Trace, address: str) -> str:
    with pytest.raises(AddressError) as error:
        parse(trace, address)
    return str(error.value)


def test_a_wrong_name_gets_the_closest(trace: Trace) -> None:
    assert "blocks.0.attn.pattern" in refused(trace, "blocks.0.attn.patern[0,0]")
    assert "pellucid explain" in refused(trace, "zzzzzzzz")


@pytest.mark.parametrize(
    "index",
    [
        "t=5,v=0",
        "2,0",
        "0,0,0,0",
        "t=1,q=0",
        "t=1,t=1,v=0",
        "t=1,2",
        "t=-1,v=0",
        "t=x,v=0",
        "-1,0",
        ",",
        "²,0",
        "t=99999999999999999999999",
    ],
)
def test_a_wrong_index_gets_the_places_and_the_tokens(trace: Trace, index: str) -> None:
    assert "t has 0…1 (A B)" in refused(trace, f"probs[{index}]")


def test_an_index_that_is_missing_names_its_axis(trace: Trace) -> None:
    assert "v has 0…3 (A B C D)" in refused(trace, "probs[1,]")
    with pytest.raises(AddressError, match=r"v is missing.*probs\[t=1,v=0\]"):
        derive(trace, "probs[t=1]")


def test_one_number_has_no_brackets(trace: Trace) -> None:
    assert "loss is one number" in refused(trace, "loss[0]")


@pytest.mark.parametrize("address", [None, 5, b"probs", ["probs"]])
def test_an_address_is_a_text(trace: Trace, address: Any) -> None:
    with pytest.raises(UsageError, match="at must be"):
        parse(trace, address)


@pytest.mark.parametrize("address", ["", "probs[", "probs]1[", "a b", "probs[1][2]", "probs[t=[1]"])
def test_what_is_not_an_address_gets_an_example(trace: Trace, address: str) -> None:
    assert "for example probs[t=1,v=3]" in refused(trace, address)


def test_a_missing_gradient_or_update_says_what_to_give(trace: Trace) -> None:
    bare = pellucid.load("abcd").trace("A B")
    assert refused(bare, "d.logits[0,0]").endswith("This trace has no gradients: give a target (--target).")
    assert refused(trace, "d.probs[0,0]").endswith("It has no gradient: the loss does not depend on it.")
    assert refused(trace, "probs@7[0,0]").endswith("give update and steps (--update, --steps).")
    assert refused(bare, "loss").endswith("There is no loss: give a target (--target).")
    trained = pellucid.load("abcd").trace("A B", target="C", update="sgd")
    assert refused(trained, "d.unembed.weight@1[0,0]").endswith("(--steps).")


@pytest.mark.parametrize(
    "address", ["x" * 99_999, "probs[v=" + "x" * 99_999 + "]", "probs[" + "1," * 50_000 + "1]", "[" * 99_999]
)
def test_a_message_does_not_repeat_what_is_endless(trace: Trace, address: str) -> None:
    assert len(refused(trace, address)) < 1000


def test_a_value_without_numbers_has_a_name_but_no_cell() -> None:
    tape = Tape()
    tape.constant("x", np.zeros((0, 3)))
    assert parse(Trace(tape), "x").cell is None
    with pytest.raises(AddressError, match="i is empty"):
        parse(Trace(tape), "x[i=0,j=0]")
