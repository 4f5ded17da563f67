"""`attention` lists the keys of each query by their share of the pattern."""

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B C D A"))
    return session


def test_shares_are_the_pattern_s_largest_first_and_the_rest_makes_them_one(session: Session) -> None:
    found = session.ask("attention", layer=0, head=0, count=2)
    pattern = session.traces["t1"].trace.tape["blocks.0.attn.pattern"][0, 0]
    for query in found["queries"]:
        shares = [key["value"] for key in query["keys"]]
        assert shares == sorted(pattern[query["t"]], reverse=True)[: len(shares)]
        assert sum(shares) + query["rest"] == pytest.approx(1, abs=1e-15)
        assert [key["at"] for key in query["keys"]] == [
            f"blocks.0.attn.pattern[t={query['t']},s={key['s']}]" for key in query["keys"]
        ]


def test_a_key_that_the_mask_hides_is_not_listed(session: Session) -> None:
    queries = session.ask("attention", layer=0, head=0, count=16)["queries"]
    assert [len(query["keys"]) + query["folded"] for query in queries] == [1, 2, 3, 4, 5]


def test_a_long_prompt_is_read_in_parts(session: Session) -> None:
    found = session.ask("attention", layer=0, head=0, t=2, rows=2)
    assert [query["t"] for query in found["queries"]] == [2, 3]
    assert (found["up"], found["down"], found["length"]) == (0, 4, 5)
    assert [query["t"] for query in session.ask("attention", layer=0, head=0, rows=2)["queries"]] == [3, 4]


def test_the_scores_before_the_softmax_are_named(session: Session) -> None:
    names = session.ask("attention", layer=0, head=0)["before"]
    assert names == ["blocks.0.attn.masked", "blocks.0.attn.scores"]


@pytest.mark.parametrize("place", [{"layer": 1, "head": 0}, {"layer": 0, "head": 1}])
def test_a_missing_layer_or_head_is_refused(session: Session, place: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        session.ask("attention", **place)
