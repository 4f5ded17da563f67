"""Who may ask: sizes, hosts, origins, keys; on every route, pages included."""

import hmac

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.app import ShellRoute
from pellucid.server.http.limits import (
    Access,
    RequestError,
    Scope,
    check_host,
    check_key,
    check_origin,
    make_serve_access,
)
from tests.server.serving import KEY, Running, run_server

PATHS = ("/", "/explore", "/explore/", "/explore/main.js", "/explore/nothing.js", "/api/session", "/nothing")
REFUSED_HOSTS = """
    evil.example 127.0.0.1 localhost 127.0.0.1:1 127.0.0.1.evil.example:{port} localhost.:{port}
    localhost:{port}.evil.example evil.example:{port} [::1] 0.0.0.0:{port} 127.0.0.1:{port}@evil.example
    127.0.0.1:0{port} 127.1:{port} 2130706433:{port} user@127.0.0.1:{port} 127.0.0.1:{port}/ [::2]:{port}
    """.split()  # noqa: SIM905
REFUSED_ORIGINS = """
    null http://evil.example https://127.0.0.1:{port} http://127.0.0.1 http://127.0.0.1:1 file://
    http://127.0.0.1:{port}.evil.example http://localhost http://localhost:{port}/ HTTP://127.0.0.1:{port}
    """.split()  # noqa: SIM905


@pytest.mark.parametrize("path", PATHS)
def test_another_host_is_refused_on_every_route(server: Running, path: str) -> None:
    for host in REFUSED_HOSTS:
        assert server.ask("GET", path, Host=host.format(port=server.port)).status == 400, host
    assert server.send(f"GET {path} HTTP/1.0\r\n\r\n".encode()).startswith(b"HTTP/1.1 400")
    assert server.send(f"GET {path} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 400")
    two = f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\nHost: evil.example\r\n\r\n"
    assert server.send(two.encode()).startswith(b"HTTP/1.1 400")
    absolute = f"GET http://{server.host}{path} HTTP/1.1\r\nHost: {server.host}\r\n\r\n"
    assert server.send(absolute.encode()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_our_own_names_are_accepted(server: Running, host: str) -> None:
    assert server.ask("GET", "/explore/", Host=f"{host}:{server.port}").status == 200


@pytest.mark.parametrize("path", PATHS)
def test_another_origin_is_refused_on_every_route(server: Running, path: str) -> None:
    for origin in REFUSED_ORIGINS:
        assert server.ask("GET", path, Origin=origin.format(port=server.port)).status == 403, origin
    for site in ("cross-site", "same-site", "x"):
        assert server.ask("GET", path, Sec_Fetch_Site=site).status == 403, site


def test_our_own_origin_is_accepted(server: Running) -> None:
    headers = {"Origin": f"http://{server.host}", "Sec_Fetch_Site": "same-origin"}
    assert server.ask("GET", "/api/session", **headers).status == 200


def test_a_link_elsewhere_may_open_the_page_and_a_frame_may_not(server: Running) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert server.ask("GET", "/explore/", None, None, **link, Sec_Fetch_Dest="document").status == 200
    assert server.ask("GET", "/explore/", None, None, **link, Sec_Fetch_Dest="iframe").status == 403
    assert server.ask("GET", "/api/session", None, None, **link, Sec_Fetch_Dest="document").status == 401


def test_a_wrong_key_is_refused_on_every_route_that_is_not_public(server: Running) -> None:
    wrong = [None, "", "x", KEY[:-1], KEY + "k", KEY.upper(), "\xff" * 32]
    before = list(server.worker.asked)
    for key in wrong:
        answer = server.ask("GET", "/api/session", key=key)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), key
        assert server.post("/api/run", b"{}", key=key).status == 401, key
        assert server.ask("PUT", "/api/run", b"{}", key=key).status == 401, key
    for header in (KEY, f"Basic {KEY}", f"Bearer{KEY}", f"Bearer {KEY} x"):
        assert server.ask("GET", "/api/session", Authorization=header).status == 401, header
    assert server.ask("GET", f"/api/session?key={KEY}", key=None).status == 401
    assert server.worker.asked == before


def test_only_the_page_is_public(server: Running) -> None:
    public = {route.path for route in server.app.routes if route.is_public}
    assert public == {"/", "/explore", "/explore/", "/explore/{name}", "/open/{token}"}


def test_a_new_route_asks_for_the_key() -> None:
    async def answer(request: Request) -> Response:
        return Response(b"{}")

    with run_server(more=[ShellRoute("/new", answer)]) as running:
        assert running.ask("GET", "/new", key=None).status == 401
        assert running.ask("GET", "/new").status == 200


def test_a_long_head_is_refused(server: Running) -> None:
    assert server.ask("GET", "/api/session", X="y" * 60_000).status == 200
    assert server.ask("GET", "/api/session", X="y" * 66_000).status == 431
    assert server.ask("GET", "/api/session", X="y" * 200_000).status == 431
    assert server.ask("GET", f"/api/session?x={'y' * 70_000}").status == 431
    assert server.ask("GET", f"/api/session?x={'y' * 50_000}").status == 414
    assert server.ask("GET", "/explore/", **{f"X{i}": "y" for i in range(101)}).status == 431
    assert server.ask("GET", "/explore/", **{f"X{i}": "y" for i in range(98)}).status == 200


def test_no_answer_lets_another_origin_read_it(server: Running) -> None:
    for path in PATHS:
        answer = server.ask("GET", path, Origin=f"http://{server.host}")
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert server.ask("OPTIONS", "/api/run", Access_Control_Request_Method="POST").status == 405


def test_a_body_with_two_lengths_is_refused_and_nothing_after_it_is_read(server: Running) -> None:
    head = f"POST /api/run HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
    body = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    found = server.send(f"{head}{body}GET /explore/ HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
    assert found.startswith(b"HTTP/1.1 400") and found.count(b"HTTP/1.1") == 1


def test_the_key_is_not_in_the_text_of_what_holds_it() -> None:
    assert KEY not in repr(Access(80, KEY))


# ---- the names and the key of a server


def make_scope(**headers: str) -> Scope:
    return {
        "method": "POST",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


SERVED = make_serve_access(8000, "192.0.2.7", KEY, ["Models.example.org", "localhost:9000"])


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("192.0.2.7:8000", True),
        ("192.0.2.7", False),
        ("127.0.0.1:8000", True),
        ("127.0.0.1", False),
        ("models.example.org", True),
        ("MODELS.example.org:8000", True),
        ("models.example.org:8001", False),
        ("models.example.org.", False),
        ("x.models.example.org", False),
        ("localhost:9000", True),
        ("localhost:9001", False),
        ("localhost", False),
    ],
)
def test_a_server_is_asked_by_its_address_and_by_the_names_that_it_allows(
    host: str, is_allowed: bool
) -> None:
    if is_allowed:
        check_host(SERVED, make_scope(Host=host))
        return
    with pytest.raises(RequestError, match="--allow-host"):
        check_host(SERVED, make_scope(Host=host))


def test_only_an_allowed_name_may_be_that_of_a_proxy_with_https() -> None:
    for origin in ("http://127.0.0.1:8000", "https://models.example.org", "http://models.example.org:8000"):
        check_origin(SERVED, make_scope(Origin=origin))
    for origin in ("https://127.0.0.1:8000", "https://192.0.2.7", "https://models.example.org:1", "null"):
        with pytest.raises(RequestError) as caught:
            check_origin(SERVED, make_scope(Origin=origin))
        assert caught.value.status == 403


def test_every_address_at_once_allows_no_name_of_its_own() -> None:
    assert make_serve_access(8000, "0.0.0.0", KEY).authorities == Access(8000, KEY).authorities
    assert make_serve_access(8000, "::1", KEY).authorities == Access(8000, KEY).authorities


def test_without_a_key_any_is_accepted_and_ignored() -> None:
    access = make_serve_access(8000, "127.0.0.1", None)
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic \x00"}):
        check_key(access, make_scope(**headers))


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair))
    for given in (KEY, KEY[:-1], ""):
        with pytest.raises(RequestError):
            check_key(SERVED, make_scope(Authorization=f"Bearer {given}"))
    assert compared == [(given.encode(), KEY.encode()) for given in (KEY, KEY[:-1], "")]


def test_the_refusal_says_how_the_key_is_given() -> None:
    with pytest.raises(RequestError, match="Authorization: Bearer KEY") as caught:
        check_key(SERVED, make_scope())
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    with pytest.raises(RequestError, match="address that the command printed"):
        check_key(Access(80, KEY), make_scope())
