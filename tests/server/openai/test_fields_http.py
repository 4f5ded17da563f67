"""Any request over HTTP: the server answers it, in OpenAI's form where it is refused, and goes on."""

import json
import logging
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from pellucid.server.openai.fields import ALL, GENERATION, PATHS, FieldEndpoint, get_fields
from tests.server.field_strategies import SMALLEST, walk_cases
from tests.server.fuzzing import Client, check_answer, fuzz
from tests.server.served import Served, run_served


@pytest.mark.parametrize("endpoint", GENERATION)
def test_every_number_is_answered_at_its_bounds_and_refused_by_name_beyond_them(
    served: Served, endpoint: FieldEndpoint
) -> None:
    """Within its own bounds a number may still be more than the context or the slots hold."""
    fields, statuses = get_fields(endpoint), set[int]()
    with Client(served) as client:
        for name, value, is_good, body in walk_cases(endpoint):
            if fields[name].type not in (int, float) or type(value) not in (int, float):
                continue
            data = json.dumps(body if name.startswith("max_") else {"max_tokens": 1, **body})
            status, answer = client.send(PATHS[endpoint], data.encode())
            check_answer(status, answer)
            statuses.add(status)
            if not is_good:
                assert status == 400, (name, value)
                if type(value) is int or isfinite(value):  # else it is not JSON
                    assert json.loads(answer)["error"]["param"] == name, (name, value, answer)
    assert statuses == {200, 400}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_what_is_not_a_number_of_json_is_refused(served: Served, number: str) -> None:
    for endpoint in GENERATION:
        data = json.dumps(SMALLEST[endpoint])[:-1] + f', "temperature": {number}}}'
        with Client(served) as client:
            status, answer = client.send(PATHS[endpoint], data.encode())
        check_answer(status, answer)
        assert status == 400


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"regex": text}
            for text in ("(.*a.{20})", "(a{999}){999}", "((a?){99}){99}", "(", "a" * 9_999, "[")
        ),
        *({"grammar": text} for text in ("stories", "root ::= a", "\0")),
        {"json_schema": {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(1500)}}},
        {"json_schema": {"type": "array", "items": {"type": "string", "minLength": 9999}, "maxItems": 9999}},
        {"json_schema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
        {"json_schema": "[" * 50_000},
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_hostile_constraint_is_refused(served: Served, given: dict[str, Any]) -> None:
    answer = served.ask("POST", PATHS["completions"], {"prompt": "A", "max_tokens": 2, **given})
    check_answer(answer.status, answer.body)
    assert answer.status == 400


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        ("completions", {"prompt": ""}, None),
        ("completions", {"prompt": []}, "prompt"),
        ("completions", {"prompt": [1] * 127, "max_tokens": 1}, None),
        ("completions", {"prompt": [1] * 127, "max_tokens": 2}, "max_tokens"),
        ("completions", {"prompt": [1] * 128, "max_tokens": 0, "echo": True}, None),
        ("completions", {"prompt": [1] * 129, "max_tokens": 0, "echo": True}, "prompt"),
        ("completions", {"prompt": [1, 10_000]}, "prompt"),
        ("completions", {"prompt": "a b " * 1_900_000}, "prompt"),
        ("completions", {"prompt": ["A", "a b " * 1_000]}, "prompt[1]"),
        ("completions", {"prompt": "A", "stop_ids": [10_000]}, "stop_ids"),
        ("completions", {"prompt": "A", "n": 9}, "n"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": [{"role": "user", "content": "a b " * 1_900_000}]}, "messages"),
        ("embeddings", {"input": "a b " * 1_900_000}, "input"),
        ("tokenize", {"prompt": "a b " * 1_900_000}, "prompt"),
        ("detokenize", {"tokens": [10_000]}, "tokens"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_the_model_cannot_hold_is_refused_by_name(
    served: Served, endpoint: FieldEndpoint, body: dict[str, Any], param: str | None
) -> None:
    """The model has 300 tokens, a context of 128 and 8 slots."""
    answer = served.ask("POST", PATHS[endpoint], body)
    check_answer(answer.status, answer.body)
    found = None if answer.status == 200 else json.loads(answer.body)["error"]["param"]
    assert (answer.status, found) == (200 if param is None else 400, param), answer.body[:300]


def run_fuzz(model: Path, log: pytest.LogCaptureFixture, capture: Any, seeds: range, count: int) -> None:
    """Sends requests, and looks at the terminal and the server afterwards."""
    with log.at_level(logging.WARNING), run_served(model, slots=8) as served:
        process = served.engine.pid
        for seed in seeds:
            statuses = fuzz(served, seed, count)
            assert {200, 400} <= set(statuses), statuses
            assert served.engine.pid == process, "the engine was started again"
        assert served.post(PATHS["completions"], prompt="A", max_tokens=2)["usage"]["completion_tokens"] <= 2
    written = capture.readouterr()
    assert "Traceback" not in written.out + written.err
    assert not [record for record in log.records if record.name.startswith("pellucid")]


def test_any_request_is_answered(
    tiny_model: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    run_fuzz(tiny_model, caplog, capfd, range(1), 500)


@pytest.mark.torture
def test_a_hundred_thousand_requests_are_answered(
    tiny_model: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """It takes a quarter of an hour: a hundredth of a second for each, where other work has the cores."""
    run_fuzz(tiny_model, caplog, capfd, range(1, 101), 1_000)


def test_the_fuzz_covers_every_endpoint_that_has_fields(served: Served) -> None:
    assert {PATHS[endpoint] for endpoint in ALL} <= {route.path for route in served.app.routes}
