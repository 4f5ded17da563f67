"""The page's files by name alone, and questions with their methods."""

import itertools
import json

import pytest

from tests.server.serving import FILES, KEY, Running

UPS = [
    "../",
    "..%2f",
    "%2e%2e/",
    "%2e%2e%2f",
    "%252e%252e%252f",
    "..\\",
    "..%5c",
    "%2e%2e%5c",
    "....//",
    "..;/",
]
UPS += ["%c0%ae%c0%ae/", "..%c0%af", "..%ef%bc%8f", "..%00/", ".%2e/", "..//", "/", "%2f", "//", "./../"]
GOALS = [
    "etc/passwd",
    "pellucid/__init__.py",
    "page/index.html",
    "session.py",
    "main.js%00.html",
    "proc/self/environ",
]
TRAVERSALS = [
    *(f"/explore/{up * count}{goal}" for up, goal, count in itertools.product(UPS, GOALS, (1, 6))),
    *(
        f"/explore/{name}{end}"
        for name in FILES
        for end in ("/", "/.", "%20", "%00", "\\", "/..", ".bak", "~", "%0a")
    ),
    *(
        f"/{name}"
        for name in ("main.js", "explore/.", "explore/..", "explore//", "explore//main.js", "EXPLORE/")
    ),
    *("/explore/C:/Windows/win.ini", "/explore/file:///etc/passwd", "/explore/~root/.bashrc", "/explore/%0a"),
]


def test_a_file_of_the_page_is_what_was_read_at_the_start(server: Running) -> None:
    kinds = {"index.html": "text/html", "main.js": "text/javascript", "page.css": "text/css"}
    for name, content in FILES.items():
        answer = server.ask("GET", f"/explore/{name}", key=None)
        assert (answer.status, answer.body) == (200, content)
        assert answer.headers["content-type"] == f"{kinds[name]}; charset=utf-8"
    assert server.ask("GET", "/explore/", key=None).body == FILES["index.html"]
    head = server.ask("HEAD", "/explore/main.js", key=None)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(FILES["main.js"])))


@pytest.mark.parametrize("path", ["/", "/explore"])
def test_other_beginnings_lead_to_the_page(server: Running, path: str) -> None:
    answer = server.ask("GET", path, key=None)
    assert (answer.status, answer.headers["location"]) == (307, "/explore/")


def test_no_form_of_a_path_leads_out_of_the_page(server: Running) -> None:
    assert len(set(TRAVERSALS)) > 200
    for path in TRAVERSALS:
        answer = server.send(f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 404"), (path, answer)


def test_an_unknown_question_names_a_close_one(server: Running) -> None:
    answer = server.ask("GET", "/api/cel")
    assert answer.status == 404 and "'cell'" in answer.message
    assert server.ask("GET", "/api/").status == 404
    assert server.ask("GET", "/api/session/x").status == 404


def test_an_answer_says_how_long_it_took(server: Running) -> None:
    assert server.ask("GET", "/api/session").headers["server-timing"].startswith("answer;dur=")


def test_a_question_that_is_refused_has_the_body_of_every_error(server: Running) -> None:
    answer = server.ask("GET", "/api/wrong")
    error = {"message": "t must be below 2.", "type": "invalid_request_error", "param": None, "code": None}
    assert (answer.status, json.loads(answer.body)) == (400, {"error": error})


def test_the_link_for_the_browser_works_once(server: Running) -> None:
    link = server.app.entrance.make_link()
    path = link.removeprefix(f"http://{server.host}")
    assert KEY not in link
    first, second = server.ask("GET", path, key=None), server.ask("GET", path, key=None)
    assert (first.status, first.headers["location"]) == (303, f"/explore/#key={KEY}")
    assert second.status == 404 and "location" not in second.headers


def test_a_wrong_guess_at_the_link_opens_nothing_and_leaves_it(server: Running) -> None:
    path = server.app.entrance.make_link().removeprefix(f"http://{server.host}")
    for guess in ("x", "%ff", "k" * 32):
        assert server.ask("GET", f"/open/{guess}", key=None).status == 404
    assert server.ask("GET", path, key=None).status == 303
