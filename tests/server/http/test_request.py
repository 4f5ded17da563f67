"""A query string and a JSON body have one meaning, or are refused."""

import json
import random
import re

import pytest

from pellucid.server.http.limits import LIMITS, RequestError
from pellucid.server.http.request import parse_json, parse_query
from pellucid.server.openai.fields import MOST_INPUTS
from pellucid.server.openai.reading.field import MOST_IDS
from tests.server.serving import Running


@pytest.mark.parametrize(
    "query",
    [
        *("a=1&a=2", "a=1&a=1", "a=1&%61=2", "a", "a=1&", "&", "a=1&b"),
        *("a=%", "a=%4", "a=%zz", "a=%ff", "a=%ed%a0%80"),
        "&".join(f"a{i}=1" for i in range(33)),
    ],
)
def test_a_query_string_that_has_two_meanings_or_none_is_refused(query: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_query(query.encode(), LIMITS)
    assert refused.value.status == 400


def test_a_query_string_is_what_the_page_encoded() -> None:
    assert parse_query(b"", LIMITS) == {}
    assert parse_query(b"a=&b=%E2%96%81x%20y%2B%26%3D", LIMITS) == {"a": "", "b": "▁x y+&="}


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"[]", b"1", b'"x"', b"null", b"{'a': 1}", b'{"a": 1,}', b'{"a": 1} x',
        b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e999}',
        b'{"a": 1, "a": 2}', b'{"a": {"b": 1, "b": 1}}',
        b'{"a": "\\ud800"}', b'{"\\udc00": 1}', b'{"a": "\\ud83d\\ud83d"}',
        b'{"a": "\xff"}', b'\xef\xbb\xbf{"a": 1}', b'{"a": "\xed\xa0\x80"}', '{"a": 1}'.encode("utf-16"),
        b'{"a": "\x00"}', b'{"a": 01}', b'{"a": .5}', b'{"a": +1}', b'{"a": 0x10}',
        b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 33 + b"]" * 33 + b"}", b'{"a": ' * 33 + b"1" + b"}" * 33,
    ],
)  # fmt: skip
def test_json_that_has_two_meanings_or_none_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        parse_json(body, LIMITS)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": "\xe9"}', "0xe9"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"a": 1e999}', "1e999"),
        (b"[" * 30_000, "nested"),
        (b"{'a': 1}", "double quotes"),
    ],
)
def test_the_message_says_what_is_wrong_with_a_body(body: bytes, fact: str) -> None:
    with pytest.raises(RequestError, match=fact):
        parse_json(body, LIMITS)


def test_json_within_the_limits_is_read() -> None:
    deep = (
        '{"a": '
        + "[" * 31
        + "]" * 31
        + ', "b": "\\ud83d\\ude00", "c": 1.5e3, "d": -0.0, "e": 12345678901234}'
    )
    found = parse_json(deep.encode(), LIMITS)
    assert (found["b"], found["c"], found["e"]) == ("😀", 1500.0, 12345678901234)


def test_a_body_reaches_its_question_and_a_query_string_too(server: Running) -> None:
    assert server.post("/api/run", b'{"prompt": "A B", "steps": 2}').status == 200
    assert server.worker.asked[-1] == ("run", {"prompt": "A B", "steps": 2}, False)
    assert server.ask("GET", "/api/cell?at=probs%5Bt%3D1%5D&top=6").status == 200
    assert server.worker.asked[-1] == ("cell", {"at": "probs[t=1]", "top": "6"}, True)
    assert server.post("/api/run?prompt=A", b"{}").status == 400


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "application/jsonx",
        "json",
    ],
)
def test_a_body_of_another_media_type_is_refused(server: Running, kind: str) -> None:
    assert server.post("/api/run", b"{}", Content_Type=kind).status == 415
    assert server.ask("POST", "/api/run", b"{}").status == 415


def test_the_media_type_may_have_parameters(server: Running) -> None:
    assert server.post("/api/run", b"{}", Content_Type="Application/JSON; charset=utf-8").status == 200
    assert server.post("/api/run", b"{}", Content_Type='application/json;a=b;charset="UTF-8"').status == 200
    assert server.post("/api/run", b"{}", Content_Encoding="gzip").status == 415


@pytest.mark.parametrize("charset", ["utf-16", '"UTF-16LE"', "latin-1", "", "utf-8; charset=utf-16"])
def test_a_body_of_another_charset_is_refused(server: Running, charset: str) -> None:
    refused = server.post("/api/run", b"{}", Content_Type=f"application/json; charset={charset}")
    assert refused.status == 415 and "UTF-8" in refused.message


def make_malformed(draw: random.Random, server: Running) -> bytes:
    """Returns a request in which bytes of a good one are cut, doubled, replaced or moved."""
    good = [
        f"GET /api/cell?at=probs%5Bt%3D1%5D&top=6 HTTP/1.1\r\nHost: {server.host}\r\n".encode(),
        b"Authorization: Bearer " + b"k" * 32 + b"\r\nContent-Type: application/json\r\n",
        b'Content-Length: 15\r\n\r\n{"prompt": "A"}',
    ]
    if draw.random() < 0.5:
        good[0] = f"POST /api/run HTTP/1.1\r\nHost: {server.host}\r\n".encode()
    data = bytearray(b"".join(good))
    for _ in range(draw.choice([1, 1, 2, 5])):
        at, size = draw.randrange(len(data)), draw.randrange(12)
        piece = draw.choice([b"", bytes(draw.randrange(256) for _ in range(size)), data[at : at + size] * 2])
        extra = draw.choice(
            [b"", b"\r\n", b"\x00", b"%", b"&", b'"', b"{", b"9" * 40, b"\xff", b": ", b"NaN"]
        )
        data[at : at + draw.choice([0, size])] = piece + extra
    return bytes(data)


def check_malformed(server: Running, seed: int, count: int) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        data = make_malformed(draw, server)
        answer = server.send(data)
        statuses = re.findall(rb"(?:^|})HTTP/1.1 (\d)", answer)
        assert set(statuses) <= {b"2", b"3", b"4"} and (statuses or not answer), (data, answer)


def test_malformed_requests_never_fail_the_server(server: Running) -> None:
    check_malformed(server, 0, 200)
    assert server.ask("GET", "/api/session").status == 200


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_malformed_requests_never_fail_the_server(server: Running, seed: int) -> None:
    check_malformed(server, seed, 1000)


@pytest.mark.parametrize("form", ["[%s]", '{"a":%s}'])
def test_values_may_be_nested_as_deeply_as_the_limit_says(form: str) -> None:
    def nest(depth: int) -> bytes:
        text = "1"
        for _ in range(depth - 1):
            text = form % text
        return f'{{"a":{text}}}'.encode()

    parse_json(nest(LIMITS.json_depth), LIMITS)
    with pytest.raises(RequestError):
        parse_json(nest(LIMITS.json_depth + 1), LIMITS)


@pytest.mark.parametrize(
    "body", [b'{"a": "\\ud800"}', b'{"\\udfff": 1}', b'{"a": ["b", [{"c": "x\\ud800"}]]}']
)
def test_half_of_a_surrogate_pair_is_found_at_any_place(body: bytes) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        parse_json(body, LIMITS)
    assert parse_json(b'{"a": ["\\ud83d\\ude00", "\xc3\xa9"]}', LIMITS) == {"a": ["😀", "é"]}


def test_a_body_of_millions_of_objects_is_refused_before_all_are_read() -> None:
    most = LIMITS.json_containers
    assert len(parse_json(b'{"user": [%b]}' % b",".join([b"{}"] * (most - 2)), LIMITS)["user"]) == most - 2
    with pytest.raises(RequestError, match="objects"):
        parse_json(b'{"user": [%b, what follows is not read' % b",".join([b"{}"] * (most - 1)), LIMITS)


@pytest.mark.parametrize(
    ("entry", "count", "fact"),
    [
        ("[" * 30 + "]" * 30, LIMITS.json_containers // 30, "lists"),
        ("{}", LIMITS.json_containers, "lists"),
        ('""', LIMITS.json_texts, "texts"),
        (r'"\\\\","\\""', LIMITS.json_texts // 2, "texts"),
        ('{"a":1}', LIMITS.json_texts, "keys"),
        ("1", LIMITS.json_values, "values"),
    ],
)
def test_a_body_of_too_many_values_is_refused_before_any_is_read(
    entry: str, count: int, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.server.http.request.json", None)  # it is not parsed
    body = '{"user": [%s]}' % ",".join([entry] * (count + 1))  # noqa: UP031
    with pytest.raises(RequestError, match=fact) as refused:
        parse_json(body.encode(), LIMITS)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["[{,:", '\\"', "\\", '\\\\"[{', 'a\\\\\\"'])
def test_what_stands_in_a_text_is_not_counted_as_values(text: str) -> None:
    given = {"user": text * 500_000, text: [text]}
    assert parse_json(json.dumps(given).encode(), LIMITS) == given


def test_the_longest_prompt_of_ids_is_within_the_limits() -> None:
    assert LIMITS.json_values > MOST_IDS and LIMITS.json_containers > MOST_INPUTS
