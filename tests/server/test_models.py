"""The list of models has the served one, under a name that may have slashes."""

import json
from collections.abc import Iterator

import pytest

from tests.server.served import STAND_IN, Served, run_served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with run_served("abcd", name="org/small:1", module=STAND_IN) as running:
        yield running


def test_the_served_model_is_the_only_one(served: Served) -> None:
    from openai import OpenAI

    client = OpenAI(base_url=served.base_url, api_key=served.key, max_retries=0)
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("org/small:1", "model", "pellucid")
    assert model.created == served.app.served.created
    assert client.models.retrieve("org/small:1") == model
    assert model.model_extra == {"max_model_len": served.app.served.pretrained.config.context_length}


@pytest.mark.parametrize("name", ["org/small", "small:1", "org%2Fsmall", "", "org/small:1/", "%2e%2e/x"])
def test_another_model_is_not_found(served: Served, name: str) -> None:
    answer = served.ask("GET", f"/v1/models/{name}")
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")


def test_a_name_may_be_escaped(served: Served) -> None:
    assert served.ask("GET", "/v1/models/org%2Fsmall%3A1").status == 200
