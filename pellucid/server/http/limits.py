"""Limits on a request before it reaches a route: its size, the host and origin that it names, its key.

A page of another origin cannot reach a server on this machine: a browser sends the Host that it was given and
the Origin that asks, and both must be ours. The key keeps out other users of the machine.
"""

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pellucid.base.errors import PellucidError
from pellucid.server.http.address import LOOPBACK_HOSTS, list_authorities, list_own_hosts, read_allowed_host

Scope = Mapping[str, Any]
"""What ASGI says about a request."""


@dataclass(frozen=True)
class Limits:
    """The most that one client may take."""

    head_bytes: int = 65_536
    """The request line and all header fields."""
    header_fields: int = 100
    query_bytes: int = 49_152
    query_fields: int = 32
    body_bytes: int = 8_000_000
    json_depth: int = 32
    json_containers: int = 32_768
    """Lists and objects of one body: each takes some microseconds, in which no other request is answered."""
    json_texts: int = 131_072
    """Keys and other texts of one body."""
    json_values: int = 2_097_152
    """Of one body: twice the ids of the longest prompt."""
    head_seconds: float = 10.0
    """From the connection, or from the last answer, to a whole head."""
    body_seconds: float = 10.0
    """From a whole head to a whole body."""
    unread_seconds: float = 30.0
    """A client that reads nothing of its answer for so long is disconnected."""
    idle_seconds: int = 5
    """How long a connection stays open for a further request."""


LIMITS = Limits()
SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        b"trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
"""They are in every answer, errors included."""


class RequestError(PellucidError):
    """A request that is refused: with the HTTP status and the header fields of the answer, the field of the
    request that is wrong (`param`), and a name for the reason (`code`) where OpenAI has one."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
"""The type of an error by its status, as OpenAI names them; of others see `name_error_type`."""


def name_error_type(status: int) -> str:
    """Returns the type of an error.

    >>> name_error_type(400), name_error_type(503)
    ('invalid_request_error', 'server_error')
    """
    return ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def make_error_body(
    message: str, status: int = 400, param: str | None = None, code: str | None = None
) -> bytes:
    """Returns the body of every answer that is an error, as OpenAI's clients read it."""
    error = {"message": message, "type": name_error_type(status), "param": param, "code": code}
    return json.dumps({"error": error}).encode()


@dataclass(frozen=True)
class Access:
    """Who may ask: under which names the server is addressed, and with which key."""

    port: int
    key: str | None = field(repr=False)
    """None: no key is asked for, and one that is sent is ignored."""
    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    allowed_hosts: tuple[str, ...] = ()
    """Further names, HOST or HOST:PORT, such as that of a proxy, which clients may address by https."""
    limits: Limits = LIMITS
    key_remedy: str = "open the address that the command printed"
    host_remedy: str = ""

    @cached_property
    def authorities(self) -> frozenset[str]:
        """HOST:PORT as a Host header has it; without the port where it is HTTP's own, or where a proxy may
        have the usual one."""
        own = {f"{host}:{self.port}" for host in self.hosts}
        return frozenset(own | set(self.hosts) if self.port == 80 else own) | self._allowed

    @cached_property
    def origins(self) -> frozenset[str]:
        return frozenset(f"http://{authority}" for authority in self.authorities) | frozenset(
            f"https://{authority}" for authority in self._allowed
        )

    @cached_property
    def _allowed(self) -> frozenset[str]:
        return frozenset(name for host in self.allowed_hosts for name in list_authorities(host, self.port))


def make_serve_access(
    port: int, address: str, key: str | None, allow_hosts: Iterable[str] = (), limits: Limits = LIMITS
) -> Access:
    """Returns who may ask a server that listens on an address: by the names of this machine's loopback, by
    the address itself where a client can name it, and by the allowed names."""
    own = (*LOOPBACK_HOSTS, *list_own_hosts(address))
    return Access(
        port,
        key,
        tuple(dict.fromkeys(own)),
        tuple(map(read_allowed_host, allow_hosts)),
        limits,
        key_remedy="send it as the header field Authorization: Bearer KEY, or open /explore/#key=KEY",
        host_remedy=" The option --allow-host of the server allows another name.",
    )


def find_header(scope: Scope, name: bytes) -> str | None:
    """Returns the value of a header field that a request may have once; None where it has none."""
    values = [value for key, value in scope["headers"] if key == name]
    if len(values) > 1:
        raise RequestError(f"the header field {name.decode()} is given {len(values)} times: give it once.")
    return values[0].decode("latin-1").strip() if values else None


def check_size(access: Access, scope: Scope) -> None:
    """Raises where the head is too long or has too many fields; h11 bounds incomplete heads only."""
    limits, headers = access.limits, scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in headers)
    if size > limits.head_bytes or len(headers) > limits.header_fields:
        raise RequestError(
            f"the request's head has {size:,} bytes in {len(headers)} header fields; the most are "
            f"{limits.head_bytes:,} bytes and {limits.header_fields} fields.",
            431,
        )
    if len(scope["query_string"]) > limits.query_bytes:
        raise RequestError(f"the query string has more than {limits.query_bytes:,} bytes.", 414)


def check_target(access: Access, scope: Scope) -> None:
    """Raises where the target is not a path: an absolute URI could name another host than Host does."""
    if not scope["path"].startswith("/"):
        raise RequestError("the request's target must be a path that begins with /.")
    if not scope["path"].isprintable():
        raise RequestError("there is no such path: it has a control character.", 404)


def check_framing(access: Access, scope: Scope) -> None:
    """Raises where a body has two lengths: a proxy before the server may go by the other one."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
        message = "the request has both Content-Length and Transfer-Encoding: send one of them."
        raise RequestError(message, Connection="close")


def check_host(access: Access, scope: Scope) -> None:
    """Raises unless the request addresses this machine by a name that no other site can have."""
    host = find_header(scope, b"host")
    if host is None or host.lower() not in access.authorities:
        names = ", ".join(sorted(access.authorities))
        raise RequestError(f"the Host must be one of {names}.{access.host_remedy}")


def check_origin(access: Access, scope: Scope) -> None:
    """Raises where a page of another origin asks.

    A link that the reader follows from elsewhere may open the page itself, which holds no number."""
    origin = find_header(scope, b"origin")
    if origin is not None and origin not in access.origins:
        raise RequestError(
            "a page of another origin may not ask this server: let the page's own server ask.", 403
        )
    if find_header(scope, b"sec-fetch-site") in (None, "same-origin", "none"):
        return
    is_followed_link = (
        scope["method"] == "GET"
        and find_header(scope, b"sec-fetch-mode") == "navigate"
        and find_header(scope, b"sec-fetch-dest") == "document"
    )
    if not is_followed_link:
        raise RequestError("a page of another site may not ask this server.", 403)


def check_key(access: Access, scope: Scope) -> None:
    """Raises unless the request has the server's key: `Authorization: Bearer KEY`.

    Where there is none, clients that always send one are answered as well."""
    if access.key is None:
        return
    given = find_header(scope, b"authorization") or ""
    scheme, _, key = given.partition(" ")
    is_right = hmac.compare_digest(key.strip().encode("latin-1"), access.key.encode())
    if not is_right or scheme.lower() != "bearer":
        raise RequestError(
            f"the key is missing or wrong: {access.key_remedy}.",
            401,
            code="invalid_api_key",
            WWW_Authenticate="Bearer",
        )


CHECKS: tuple[Callable[[Access, Scope], None], ...] = (
    check_size,
    check_target,
    check_framing,
    check_host,
    check_origin,
)
"""What every request must pass, whatever it asks for; a route that is not public asks for the key as well."""
