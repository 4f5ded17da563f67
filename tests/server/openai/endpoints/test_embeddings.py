"""A vector is the normalized mean of the final hidden states, whatever the form of input and answer."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

import pellucid
from pellucid.model import Model
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.endpoints.embeddings import MOST_CONCURRENT, embed_all, write_numbers
from pellucid.server.openai.metrics import EngineLoad
from tests.server.served import Served

TEXTS = ["Once upon a time", "the cat", "½ père\n"]


class CountingEngine:
    """Embeds a prompt as its own first id, after a while; keeps count of what runs."""

    def __init__(self, most_requests: int = 99) -> None:
        self.running = self.most = self.done = 0
        self.load = EngineLoad(most_requests=most_requests)

    async def embed(self, prompt: tuple[int, ...]) -> list[float]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.001)
            if prompt[0] == 99:
                raise RequestError("no", 429)
            self.done += 1
            return [float(prompt[0])]
        finally:
            self.running -= 1


def test_many_inputs_are_embedded_a_few_at_a_time_and_keep_their_order() -> None:
    engine: Any = CountingEngine()
    found = asyncio.run(embed_all(engine, [(i,) for i in range(50)], write_numbers))
    assert found == [b"[%d.0]" % i for i in range(50)] and engine.most == MOST_CONCURRENT


def test_no_more_inputs_are_sent_than_the_engine_takes() -> None:
    engine: Any = CountingEngine(most_requests=2)
    asyncio.run(embed_all(engine, [(i,) for i in range(9)], write_numbers))
    assert engine.done == 9 and engine.most == 2


def test_the_first_error_ends_all_of_them() -> None:
    engine: Any = CountingEngine()
    with pytest.raises(RequestError) as refused:
        asyncio.run(embed_all(engine, [(99,), *((i,) for i in range(50))], write_numbers))
    assert refused.value.status == 429 and engine.running == 0 and engine.done < 2 * MOST_CONCURRENT


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return pellucid.load(tiny_model)


def embed_by_specification(model: Model, ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """The mean of what the final norm gives, divided by its length; in float64."""
    mean = np.asarray(model.trace(list(ids)).value("final_norm.out"))[0].mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("settings", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_a_vector_is_the_normalized_mean_of_the_final_hidden_states(
    served: Served, model: Model, settings: Any
) -> None:
    """Where no form is asked for, the package asks for base64, and decodes it."""
    with OpenAI(base_url=served.base_url, api_key=served.key, max_retries=0) as client:
        found = client.embeddings.create(input=TEXTS, model="tiny", **settings)
    assert [row.index for row in found.data] == [0, 1, 2] and found.model == "tiny"
    count = sum(len(model.encode(text)) for text in TEXTS)
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (count, count)
    for text, row in zip(TEXTS, found.data, strict=True):
        vector = np.asarray(row.embedding)
        assert np.abs(vector - embed_by_specification(model, model.encode(text))).max() < 1e-5
        assert math.isclose(np.linalg.norm(vector), 1, abs_tol=1e-6)


def test_every_form_of_input_gives_the_same_vector(served: Served, model: Model) -> None:
    ids = model.encode(TEXTS[0])
    forms = [TEXTS[0], [TEXTS[0]], ids, [ids]]
    found = [served.post("/v1/embeddings", input=form)["data"][0]["embedding"] for form in forms]
    assert len(found[0]) == model.config.d_model and all(vector == found[0] for vector in found)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "a", "dimensions": 8}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": ["a", [1, 300]]}, "input[1]"),
        ({"input": ["a", "x" * 200]}, "input[1]"),
        ({"input": []}, "input"),
        ({}, "input"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_cannot_be_embedded_is_refused(served: Served, body: Any, param: str) -> None:
    answer = served.ask("POST", "/v1/embeddings", body)
    assert answer.status == 400 and json.loads(answer.body)["error"]["param"] == param


def test_a_client_that_leaves_ends_its_requests(served: Served) -> None:
    body = json.dumps({"input": [[5] * 100] * 2000}).encode()
    connection = served.connect()
    connection.request("POST", "/v1/embeddings", body, served.headers)
    wait_until(lambda: served.engine.in_flight > 0)
    connection.close()
    wait_until(lambda: served.engine.in_flight == 0)


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 2
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.002)
