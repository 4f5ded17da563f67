"""One server for the tests of the shell."""

from collections.abc import Iterator

import pytest

from tests.server.serving import Running, run_server


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    with run_server() as running:
        yield running
