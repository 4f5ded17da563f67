"""`ledger` shows how each token was chosen, in a session that was opened on a ledger file."""

import json
from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.generation.ledger.ledger import Ledger
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session
from tests.generation.ledger.test_ledger import generate


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return generate(pellucid.load("abcd"), temperature=0.8, top_k=3, max_new_tokens=6, seed=4, n=2)


@pytest.fixture(scope="module")
def session(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("ledgers") / "text.json"
    ledger.save(path)
    return Session.open(str(path))


def test_every_token_has_the_numbers_of_its_entry(session: Session, ledger: Ledger) -> None:
    for choice, done in enumerate(ledger.completions):
        found = session.ask("ledger", choice=choice)
        assert [token["id"] for token in found["tokens"]] == list(done.ids)
        for token, entry in zip(found["tokens"], done.entries, strict=True):
            assert (token["u"], token["p"], token["rank"]) == (entry.u, entry.probability, entry.rank)
            chosen = next(one for one in token["candidates"] if one["id"] == entry.id)
            low, high = chosen["interval"]
            assert low <= token["u"] < high and chosen["p"] == entry.probability
    assert (found["choices"], found["seed"], found["model"]) == (2, 4, "abcd")


def test_tokens_are_listed_window_by_window(session: Session, ledger: Ledger) -> None:
    ids, start = list[int](), 0
    while start is not None:
        found = session.ask("ledger", count=4, top=1, **{"from": start})
        ids += [token["id"] for token in found["tokens"]]
        start = found["next"]
    assert ids == list(ledger.completions[0].ids)
    assert session.ask("ledger", **{"from": 100})["tokens"] == []


def test_the_chosen_token_is_listed_wherever_it_stands(session: Session) -> None:
    for token in session.ask("ledger", top=1)["tokens"]:
        assert token["id"] in [one["id"] for one in token["candidates"]] and len(token["candidates"]) <= 2


def test_the_model_of_a_ledger_runs_its_prompt(session: Session, ledger: Ledger) -> None:
    trace = session.run(RunRequest(list(ledger.prompt))).trace
    assert trace.run["ids"] == [list(ledger.prompt)]


def test_beams_have_tokens_without_candidates(tmp_path: Path) -> None:
    generate(pellucid.load("abcd"), beams=2, max_new_tokens=3).save(tmp_path / "text.json")
    found = Session.open(str(tmp_path / "text.json")).ask("ledger")
    assert found["tokens"] and set(found["tokens"][0]) == {"id", "label"}


def test_an_answer_holds_no_path_of_the_machine(session: Session) -> None:
    assert str(Path(pellucid.__file__).parent) not in json.dumps(session.ask("ledger"))


@pytest.mark.parametrize("given", [{"choice": 2}, {"from": -1}, {"count": 33}, {"top": 0}])
def test_what_is_not_in_a_ledger_is_refused(session: Session, given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        session.ask("ledger", **given)


def test_other_sessions_have_no_ledger() -> None:
    with pytest.raises(UsageError, match="ledger"):
        Session.open("abcd").ask("ledger")
