"""Addresses by place or by letter, and errors that show what is there."""

import pytest

import pellucid
from pellucid.errors import AddressError
from pellucid.explain.address import parse
from pellucid.explain.trace import Trace


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
    assert parse(trace, address) == ("probs", (0, 1, 2))


def test_a_name_alone_is_the_whole_value_and_a_single_number_its_cell(trace: Trace) -> None:
    assert parse(trace, "probs") == ("probs", None)
    assert parse(trace, "loss") == ("loss", ())
    assert parse(trace, "blocks.0.resid_pre[1,0]") == ("embedded", (0, 1, 0))
    assert parse(trace, "unembed.weight@0[2,1]") == ("unembed.weight", (2, 1))


def refused(trace: Trace, address: str) -> str:
    with pytest.raises(AddressError) as error:
        parse(trace, address)
    return str(error.value)


def test_a_wrong_name_gets_the_closest(trace: Trace) -> None:
    assert "Did you mean blocks.0.attn.pattern" in refused(trace, "blocks.0.attn.patern[0,0]")
    assert "Without --at, the names are listed" in refused(trace, "zzzzzzzz")


@pytest.mark.parametrize(
    "index",
    [
        "t=5,v=0",
        "2,0",
        "0",
        "0,0,0,0",
        "t=1",
        "t=1,q=0",
        "t=1,t=1,v=0",
        "t=-1,v=0",
        "t=x,v=0",
        "-1,0",
        ",",
        "1,",
        "²,0",
    ],
)
def test_a_wrong_index_gets_the_shape_and_the_labels(trace: Trace, index: str) -> None:
    message = refused(trace, f"probs[{index}]")
    assert f"probs[{index}] is not a cell" in message
    assert "t has 0…1 (A B); v has 0…3 (A B C D). For example probs[t=1,v=3]." in message


def test_one_number_has_no_brackets(trace: Trace) -> None:
    assert refused(trace, "loss[0]").endswith("loss is one number; leave the brackets away.")


@pytest.mark.parametrize("address", ["", "probs[", "probs]1[", "a b", "probs[1][2]"])
def test_what_is_no_address_gets_an_example(trace: Trace, address: str) -> None:
    assert "for example probs[t=1,v=3]" in refused(trace, address)


def test_a_missing_gradient_or_update_says_what_to_give(trace: Trace) -> None:
    bare = pellucid.load("abcd").trace("A B")
    assert refused(bare, "d.logits[0,0]").endswith("This trace has no gradients: give --target.")
    assert refused(trace, "d.probs[0,0]").endswith("It has no gradient: the loss does not depend on it.")
    assert refused(trace, "probs@7[0,0]").endswith("give --update and --steps.")
    assert refused(bare, "loss").endswith("There is no loss: give --target.")
    trained = pellucid.load("abcd").trace("A B", target="C", update="sgd")
    assert refused(trained, "d.unembed.weight@1[0,0]").endswith("give one --steps more.")
