"""Every route of a served model: who may ask, what a refusal says, and what no page of another site gets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.server.http.app import ShellRoute
from pellucid.server.http.limits import SECURITY_HEADERS, name_error_type
from pellucid.server.openai.serve import ServeApp
from tests.server.http.test_limits import REFUSED_HOSTS, REFUSED_ORIGINS
from tests.server.served import STAND_IN, Served, run_served, save_model
from tests.server.serving import KEY, Answer, RawClient

KEYLESS = {"/health", "/", "/explore", "/explore/", "/explore/{name}"}
"""The only paths that may ask for no key: the state of the server, and the page, which holds no number."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with run_served("abcd", module=STAND_IN) as running:
        yield running


@pytest.fixture(scope="module")
def open_one() -> Iterator[Served]:
    """A server without a key."""
    with run_served("abcd", module=STAND_IN, key=None) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> RawClient:
    return RawClient(served.port)


def list_routes(app: ServeApp) -> list[tuple[str, str]]:
    """Returns a method and a path of every route."""
    found = []
    for route in app.routes:
        assert isinstance(route, ShellRoute), f"{route} does not ask for the key"
        path = re.sub(r"\{[^}]*\}", "x", route.path)
        found += [(method, path) for method in sorted(route.methods)]
    return found


def check_refusal(answer: Answer, status: int, method: str = "GET") -> None:
    """Asserts that an answer is an error as OpenAI's clients read it, with every security header once."""
    assert answer.status == status
    assert {
        name.decode(): value.decode() for name, value in SECURITY_HEADERS
    }.items() <= answer.headers.items()
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert answer.headers["content-type"] == "application/json"
    if method != "HEAD":
        [(name, error)] = json.loads(answer.body).items()
        assert name == "error" and list(error) == ["message", "type", "param", "code"]
        assert error["type"] == name_error_type(status) and error["message"].endswith((".", "?"))
        assert KEY not in error["message"]


def ask(client: RawClient, method: str, path: str, key: str | None = KEY, **headers: str) -> Answer:
    body = b"{}" if method == "POST" else None
    given = {"Content_Type": "application/json"} if body else {}
    return client.ask(method, path, body, key, **(given | headers))


def test_every_route_asks_for_the_key_but_a_few_that_are_named_here(
    served: Served, client: RawClient
) -> None:
    routes = list_routes(served.app)
    keyless = {re.sub(r"\{[^}]*\}", "x", path) for path in KEYLESS}
    assert ("GET", "/health") in routes and len(routes) > 2
    for method, path in routes:
        answer = ask(client, method, path, key=None)
        if path in keyless:
            assert answer.status != 401, path
            continue
        for wrong in (None, "", "x" * 32, KEY[:-1], f"{KEY} "[1:]):
            answer = ask(client, method, path, key=wrong)
            check_refusal(answer, 401, method)
            assert answer.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert "Authorization: Bearer KEY" in answer.message
            assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"


def test_a_key_is_nowhere_but_in_its_header(client: RawClient) -> None:
    for path in (f"/metrics?key={KEY}", f"/metrics?api_key={KEY}"):
        check_refusal(client.ask("GET", path, key=None), 401)
    check_refusal(client.ask("GET", "/metrics", key=None, X_API_Key=KEY), 401)
    check_refusal(client.ask("GET", "/metrics", Authorization=f"Basic {KEY}"), 401)
    assert client.ask("GET", "/metrics", Authorization=f"bearer {KEY}").status == 200


def test_another_host_is_refused_on_every_route(served: Served, client: RawClient) -> None:
    for method, path in list_routes(served.app):
        for host in REFUSED_HOSTS:
            check_refusal(ask(client, method, path, Host=host.format(port=client.port)), 400, method)
        for head in (
            f"{method} {path} HTTP/1.0\r\n\r\n",
            f"{method} {path} HTTP/1.1\r\n\r\n",
            f"{method} {path} HTTP/1.1\r\nHost: {client.host}\r\nHost: evil.example\r\n\r\n",
            f"{method} http://{client.host}{path} HTTP/1.1\r\nHost: {client.host}\r\n\r\n",
            f"{method} http://evil.example{path} HTTP/1.1\r\nHost: {client.host}\r\n\r\n",
        ):
            assert client.send(head.encode()).startswith(b"HTTP/1.1 400"), head


def test_a_page_of_another_origin_is_refused_on_every_route(served: Served, client: RawClient) -> None:
    for method, path in list_routes(served.app):
        for origin in REFUSED_ORIGINS:
            check_refusal(ask(client, method, path, Origin=origin.format(port=client.port)), 403, method)
        for site in ("cross-site", "same-site", "x"):
            check_refusal(ask(client, method, path, Sec_Fetch_Site=site), 403, method)


def test_without_a_key_no_page_of_another_site_can_ask(open_one: Served) -> None:
    """A form is sent without a preflight: with an Origin, with `null`, or by an old browser with neither."""
    client = RawClient(open_one.port)
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
    for method, path in list_routes(open_one.app):
        if method != "POST":
            continue
        for kind in forms:
            for origin in ("null", "https://evil.example", f"http://127.0.0.1:{client.port + 1}"):
                check_refusal(client.ask("POST", path, b"{}", None, Content_Type=kind, Origin=origin), 403)
            check_refusal(client.ask("POST", path, b'{"a": "=b"}', None, Content_Type=kind), 415)
        check_refusal(client.ask("POST", path, b"{}", None), 415)


def test_without_a_key_whatever_key_a_client_sends_is_ignored(open_one: Served) -> None:
    client = RawClient(open_one.port)
    for key in (None, "", "sk-none", KEY, "\xff"):
        assert client.ask("GET", "/metrics", key=key).status == 200
    assert client.ask("GET", "/metrics", Authorization="Basic eDp5").status == 200


def test_a_preflight_gets_nothing_that_lets_a_page_in(served: Served, client: RawClient) -> None:
    for _, path in [*list_routes(served.app), ("GET", "/nothing")]:
        asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
        for origin in ("https://evil.example", "null"):
            check_refusal(client.ask("OPTIONS", path, key=None, Origin=origin, **asked), 403)
        for key in (None, KEY):
            answer = client.ask("OPTIONS", path, key=key, Origin=f"http://{client.host}", **asked)
            check_refusal(answer, answer.status)
            assert answer.status in (401, 404, 405)


def test_a_wrong_method_names_the_right_ones(served: Served, client: RawClient) -> None:
    methods: dict[str, set[str]] = {}
    for method, path in list_routes(served.app):
        methods.setdefault(path, set()).add(method)
    for path, allowed in methods.items():
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"):
            if method not in allowed:
                answer = ask(client, method, path)
                check_refusal(answer, 405)
                assert set(answer.headers["allow"].split(", ")) == allowed, path


def test_an_engine_that_is_full_or_loading_is_an_error_with_a_body(tmp_path: Path) -> None:
    """Each says when to ask again, as the openai package does by itself."""
    slow, loads = save_model(tmp_path / "slow", n_layer=1, context_length=500), tmp_path / "slow-loads"
    loads.symlink_to(slow)
    body = b'{"prompt": "the", "max_tokens": 400, "stream": true}'
    with run_served(slow, module=STAND_IN, slots=1, queue=0) as full:
        client = RawClient(full.port)
        with client.connect() as first:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {client.host}\r\nAuthorization: Bearer {KEY}\r\n"
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            first.sendall(f"{head}{length}".encode() + body)
            assert first.recv(12) == b"HTTP/1.1 200"
            answer = client.post("/v1/completions", body)
            check_refusal(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
            several = client.post("/v1/completions", b'{"prompt": ["the", "a"]}')
            check_refusal(several, 400)  # to try again would never help
    with run_served(loads, module=STAND_IN, waits=False) as loading:
        answer = RawClient(loading.port).post("/v1/completions", body)
        check_refusal(answer, 503)
        assert int(answer.headers["retry-after"]) >= 1
        assert RawClient(loading.port).ask("GET", "/health", key=None).status == 503


def test_a_path_that_is_not_there_is_an_error_with_a_body(client: RawClient) -> None:
    for path in (
        "/nothing",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/health/",
        "//health",
        "/HEALTH",
        "/%00",
        "/v1/../health",
    ):
        check_refusal(client.ask("GET", path), 404)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("/completions", "/v1/completions"),
        ("/v1/completion", "/v1/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/", "/v1/chat/completions"),
        ("/v1/responses", "/v1/chat/completions"),
    ],
)
def test_a_path_that_is_not_there_names_those_that_are(client: RawClient, given: str, meant: str) -> None:
    answer = client.ask("GET", given)
    check_refusal(answer, 404)
    assert meant in answer.body.decode()


def test_a_path_of_another_api_starts_no_explorer(served: Served, client: RawClient) -> None:
    check_refusal(client.ask("GET", "/api/tags"), 404)
    check_refusal(client.post("/api/generate", b"{}"), 404)
    assert served.app.served.explorer.methods == {}
