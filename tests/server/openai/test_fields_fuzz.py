"""Requests made of the table of fields: each value at its bounds and beyond, and any others."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from pellucid.server.http.limits import RequestError
from pellucid.server.openai.fields import ALL, GENERATION, FieldEndpoint, read_fields
from pellucid.server.openai.reading.sampling import read_sampling
from tests.server.field_strategies import draw_body, requests, walk_cases


def refusal(endpoint: FieldEndpoint, body: dict[str, Any]) -> RequestError | None:
    """Returns why a request is refused, None where it is read; no other error may come of it."""
    try:
        values = read_fields(endpoint, body)
        if endpoint in GENERATION:
            read_sampling(values, {"temperature": 0.5, "top_k": 3}, 5)
    except RequestError as error:
        return error
    return None


@pytest.mark.parametrize("endpoint", ALL)
def test_every_field_is_accepted_within_its_bounds_and_refused_by_name_beyond_them(
    endpoint: FieldEndpoint,
) -> None:
    for name, value, is_good, body in walk_cases(endpoint):
        error = refusal(endpoint, body)
        shown = name, repr(value)[:100], error
        if not is_good:
            assert error is not None and error.param is not None and error.param.startswith(name), shown
            assert error.status == 400 and len(str(error)) < 600, shown
        elif error is not None:  # it may be one of those that cannot be combined
            read_fields(endpoint, body)


def check(endpoint: FieldEndpoint, random: Random) -> None:
    error = refusal(endpoint, draw_body(random, endpoint))
    if error is not None:
        assert error.status == 400 and str(error)[-1] in ".?", error
        assert error.param is None or len(error.param) < 200


quiet: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@settings(max_examples=500, **quiet)
@given(requests)
def test_a_request_is_read_or_refused(case: tuple[FieldEndpoint, Random]) -> None:
    check(*case)


@pytest.mark.torture
@settings(max_examples=20_000, **quiet)
@given(requests)
def test_twenty_thousand_requests_are_read_or_refused(case: tuple[FieldEndpoint, Random]) -> None:
    check(*case)
