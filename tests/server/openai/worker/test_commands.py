"""A command of the engine's process is read strictly, and whatever a line holds, it has an answer."""

import json
from typing import Any

import pytest

from pellucid.generation.answers.lines import GenerateRequest
from pellucid.generation.request import Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.server.openai.worker.commands import MOST_COMMAND, Command, parse_command


def parse(**table: Any) -> Command:
    return parse_command(json.dumps(table).encode() + b"\n")


def test_a_command_is_its_line() -> None:
    given = GenerateRequest((1, 2), {"seed": 3, "logit_bias": {"4": 1.0}})
    found = parse(id=7, do="generate", request=given._asdict())
    assert found == Command(7, "generate", given, Request((1, 2), Sampling(seed=3, logit_bias={4: 1.0})))
    assert parse(id=7, do="cancel") == Command(7, "cancel")
    assert parse(id=8, do="embed", prompt=[1, 2]) == Command(8, "embed", prompt=(1, 2))


def generate(**changes: Any) -> dict[str, Any]:
    return {"id": 7, "do": "generate", "request": {"prompt": [1], "sampling": {}} | changes}


@pytest.mark.parametrize(
    "table",
    [
        {"id": 7},
        {"id": 7, "do": "stop"},
        {"id": 7, "do": []},
        {"id": 7, "do": "cancel", "more": 1},
        {"id": 7, "do": "embed"},
        {"id": 7, "do": "embed", "prompt": [1.0]},
        {"id": 7, "do": "embed", "prompt": "A"},
        {"id": 7, "do": "generate"},
        {"id": 7, "do": "generate", "request": []},
        {"id": 7, "do": "generate", "request": {"prompt": [1]}},
        generate(prompt=[True]),
        generate(prompt=[-1]),
        generate(sampling=[]),
        generate(sampling={"temprature": 1}),
        generate(sampling={"temperature": -1}),
        generate(top_logprobs=True),
        generate(explain=1),
        generate(unknown=1),
    ],
)
def test_a_command_that_cannot_be_followed_is_refused_by_its_id(table: dict[str, Any]) -> None:
    found = parse(**table)
    assert (found.id, found.do) == (7, "refuse") and found.error


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"id": 0, "do": "cancel"}',
        b'{"id": true, "do": "cancel"}',
        b'{"id": 1, "id": 2, "do": "cancel"}',
        b'{"id": 1e3, "do": "cancel"}',
        b"[" * 10**5,
        b" " * (MOST_COMMAND + 1),
    ],
)
def test_a_line_without_an_id_is_refused_too(line: bytes) -> None:
    found = parse_command(line)
    assert (found.id, found.do) == (0, "refuse") and found.error
