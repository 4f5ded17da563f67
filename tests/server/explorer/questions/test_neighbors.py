"""`neighbors` finds the nearest rows of the embedding by cosine."""

import numpy as np
import pytest

from pellucid.base.errors import PellucidError
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.interpretability.geometry import compute_cosines, find_principal_axes
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session

ROWS = np.random.default_rng(0).normal(size=(40, 6))


def make_session() -> Session:
    tape = Tape()
    tape.parameter("embed.weight", ROWS)
    return Session(trace=Trace(tape, {}, {"v": [f"w{i}" for i in range(40)]}))


def test_the_nearest_rows_have_the_largest_cosines_and_stand_at_their_addresses() -> None:
    session = make_session()
    found, cosines = session.ask("neighbors", token=3, count=5), compute_cosines(ROWS, ROWS)[3]
    ids = [one["id"] for one in found["neighbors"]]
    assert ids == [i for i in np.argsort(-cosines) if i != 3][:5]
    assert [one["cosine"] for one in found["neighbors"]] == pytest.approx(cosines[ids].tolist())
    for one in found["neighbors"]:
        assert parse(session.get_trace(None).trace, one["at"]).cell == (one["id"], 0)
        assert one["label"] == f"w{one['id']}"


def test_the_plane_shows_the_token_and_its_neighbors() -> None:
    found = make_session().ask("neighbors", token=3, count=3)
    ids = [one["id"] for one in found["points"]]
    assert ids == [3, *(one["id"] for one in found["neighbors"])]
    places = find_principal_axes(ROWS[ids]).project(ROWS[ids])
    assert [one["place"] for one in found["points"]] == places.tolist()
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert (distances <= np.linalg.norm(ROWS[ids][:, None] - ROWS[ids][None], axis=-1) + 1e-12).all()


def test_few_rows_have_the_axes_and_variances_of_their_covariance() -> None:
    few = find_principal_axes(ROWS[:4])
    values = np.linalg.eigvalsh(np.cov(ROWS[:4].T))[::-1]
    assert few.axes.shape == (6, 6) and few.variances == pytest.approx(values, abs=1e-12)
    assert few.axes @ few.axes.T == pytest.approx(np.eye(6), abs=1e-12)


def test_a_model_of_four_tokens_has_three_neighbors() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    assert len(session.ask("neighbors", token=0, count=32)["neighbors"]) == 3
    assert session.ask("neighbors", token=0, of="unembed.weight")["matrix"] == "unembed.weight"


@pytest.mark.parametrize(
    "given", [{"token": 4}, {"token": -1}, {"token": 0, "count": 33}, {"token": 0, "of": "probs"}, {}]
)
def test_a_token_or_matrix_that_is_not_there_is_refused(given: dict[str, object]) -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    with pytest.raises(PellucidError):
        session.ask("neighbors", **given)
