"""The address that a server listens on, and the names by which it may be asked."""

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.http.address import (
    check_exposure,
    list_authorities,
    list_own_hosts,
    read_allowed_host,
    resolve_address,
)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "localhost", "2130706433", "0x7f.1"])
def test_other_spellings_of_loopback_are_that_address(host: str) -> None:
    assert resolve_address(host) == "127.0.0.1"


@pytest.mark.parametrize("host", ["", "nothing.invalid", "x" * 300, "a b", "*", "127.0.0.1:80", "http://x"])
def test_what_is_not_an_address_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="--host"):
        resolve_address(host)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_alone_needs_no_key(address: str) -> None:
    check_exposure(address, None)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "0", "::", "192.0.2.7", "2001:db8::7", "fe80::1", "::ffff:192.0.2.7"]
)
def test_what_other_machines_reach_needs_a_key(host: str) -> None:
    address = resolve_address(host)
    with pytest.raises(UsageError, match="--api-key-file"):
        check_exposure(address, None)
    check_exposure(address, "k" * 16)


def test_every_address_at_once_is_not_a_name() -> None:
    assert list_own_hosts("0.0.0.0") == list_own_hosts("::") == []
    assert list_own_hosts("fe80::1%eth0") == ["[fe80::1]"]


@pytest.mark.parametrize(
    ("text", "authorities"),
    [
        ("Models.Example.ORG", ["models.example.org", "models.example.org:8000"]),
        ("localhost:9000", ["localhost:9000"]),
        ("my_service-1", ["my_service-1", "my_service-1:8000"]),
        ("192.0.2.7", ["192.0.2.7", "192.0.2.7:8000"]),
        ("[2001:db8::7]", ["[2001:db8::7]", "[2001:db8::7]:8000"]),
        ("[2001:db8::7]:9000", ["[2001:db8::7]:9000"]),
    ],
)
def test_an_allowed_host_is_asked_with_our_port_and_with_a_proxys(text: str, authorities: list[str]) -> None:
    assert list(list_authorities(read_allowed_host(text), 8000)) == authorities


REFUSED = """
    * *.example.org .example.org example.org. example..org http://example.org example.org/ user@example.org
    0.0.0.0 0.0.0.0:8000 [::] [::0] :: 2001:db8::7 [2001:DB8::07] 1.2.3 256.1.1.1 127.1 localhost: localhost:0
    localhost:08000 localhost:65536 localhost:x -a.org a-.org é.org example.org,other.org [fe80::1%eth0] [x
    """.split()  # noqa: SIM905


@pytest.mark.parametrize(
    "text", [*REFUSED, "", " ", "a b", "a\n", "a\t", "a" * 64, "abcdefg." * 40 + "a", "a\x00"]
)
def test_a_host_that_is_not_one_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        read_allowed_host(text)
