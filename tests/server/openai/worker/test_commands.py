"""A command of the engine's process is its line, and one that cannot be followed has an answer."""

import json
from typing import Any

import pytest

from pellucid.generation.answers.lines import GenerateRequest
from pellucid.generation.request import Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.server.openai.worker.commands import Command, parse_command


def parse(**table: Any) -> Command:
    return parse_command(json.dumps(table).encode() + b"\n")


def test_a_command_is_its_line() -> None:
    given = GenerateRequest((1, 2), {"seed": 3, "logit_bias": {"4": 1.0}})
    wanted = Command(7, "generate", given, Request((1, 2), Sampling(seed=3, logit_bias={4: 1.0})))
    assert parse(id=7, do="generate", request=given._asdict()) == wanted
    assert parse(id=7, do="cancel") == Command(7, "cancel")
    assert parse(id=8, do="embed", prompt=[1, 2]) == Command(8, "embed", prompt=(1, 2))


@pytest.mark.parametrize("sampling", [{"temprature": 1}, {"temperature": -1}, {"regex": 3}])
def test_a_request_with_settings_that_cannot_be_is_refused_by_its_id(sampling: Any) -> None:
    found = parse(id=7, do="generate", request=GenerateRequest((1,), sampling)._asdict())
    assert (found.id, found.do) == (7, "refuse") and found.error
