"""The finite difference of the loss equals the back-propagated gradient."""

import pytest

from pellucid.base.errors import AddressError, TokenError, UsageError
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session

CELLS = [
    "embed.weight[v=1,c=0]",
    "blocks.0.attn.scores[t=1,s=0]",
    "logits[t=1,v=2]",
    "embedded[t=0,c=1]",
    "loss",
]


@pytest.fixture
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True))
    return session


@pytest.mark.parametrize("at", CELLS)
def test_the_quotient_is_the_gradient(session: Session, at: str) -> None:
    answer = session.ask("difference", at=at)
    assert answer["quotient"] == pytest.approx(answer["gradient"], rel=1e-6)
    assert answer["quotient"] == pytest.approx(
        (answer["plus"] - answer["minus"]) / (2 * answer["h"]), rel=1e-6
    )
    assert session.ask("value", at=answer["gradient_at"])["numbers"][0][0] == answer["gradient"] != 0
    assert list(session.summaries) == ["t1"]


def test_an_edited_number_has_a_derivative_too(session: Session) -> None:
    session.ask("edit", at=CELLS[1], value=0.7)
    session.ask("edit", at="d.logits[t=1,v=0]", value=0.5)  # changes no loss
    answer = session.ask("difference", trace="t2", at=CELLS[1])
    assert answer["value"] == 0.7 and answer["quotient"] == pytest.approx(answer["gradient"], rel=1e-6)
    assert session.ask("difference", at=CELLS[1])["quotient"] == answer["quotient"]


def test_after_an_update_the_loss_is_that_of_its_pass() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", update="sgd", lr=0.5, steps=2))
    for at in ("embed.weight[v=1,c=0]", "embed.weight@1[v=1,c=0]", "blocks.0.attn.scores@1[t=1,s=0]"):
        answer = session.ask("difference", at=at)
        assert answer["loss_at"] == ("loss@1" if "@1" in at else "loss")
        assert answer["quotient"] == pytest.approx(answer["gradient"], rel=1e-6)
    assert session.ask("difference", at="logits@2[t=1,v=0]")["gradient"] is None


def test_without_a_target_the_message_says_so() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    with pytest.raises(TokenError, match="target"):
        session.ask("difference", at=CELLS[0])
    session.run(RunRequest("A B", target="C"))
    answer = session.ask("difference", at=CELLS[0])
    assert answer["gradient"] is None is answer["gradient_at"] and answer["quotient"] != 0


def test_what_is_not_moved_and_what_is_out_of_bounds_is_refused(session: Session) -> None:
    for at, h in (
        ("d.logits[t=1,v=2]", 1e-5),
        ("ids[t=0]", 1e-5),
        (CELLS[0], 0.0),
        (CELLS[0], 2.0),
        (CELLS[0], 1e-12),
    ):
        with pytest.raises(UsageError):
            session.ask("difference", at=at, h=h)
    with pytest.raises(AddressError):
        session.ask("difference", at="embed.weight")
