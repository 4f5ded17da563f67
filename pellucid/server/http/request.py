"""Requests, read strictly: a query string or a JSON body has one meaning, or it is refused."""

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Coroutine, Iterator
from math import isfinite
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

from starlette.types import Receive

from pellucid.base.errors import PellucidError, quote, show
from pellucid.server.http.limits import Limits, RequestError, Scope, find_header

T = TypeVar("T")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")


def parse_query(query: bytes, limits: Limits) -> dict[str, str]:
    """Returns the parameters of a query string, each given once.

    >>> parse_query(b"at=probs%5Bt%3D1%5D&rows=4", Limits())
    {'at': 'probs[t=1]', 'rows': '4'}
    """
    if not query:
        return {}
    if _BROKEN_ESCAPE.search(query):
        raise RequestError("the query string has a % without two hexadecimal digits after it.")
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=limits.query_fields,
        )
    except ValueError as error:
        raise RequestError(f"the query string cannot be read: {quote(error)}.") from None
    return refuse_repeats(pairs)


def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the table of some pairs; of a key given twice, one reader takes the first, one the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        key = next(key for key, count in counts.items() if count > 1)
        raise RequestError(f"{show(key)} is given twice: give it once.")
    return found


@contextlib.contextmanager
def request_errors(param: str | None) -> Iterator[None]:
    """Turns an error that a request's own values cause into its refusal, which names the field."""
    try:
        yield
    except RequestError:
        raise
    except PellucidError as error:
        raise RequestError(str(error), param=param) from None


def check_no_query(scope: Scope) -> None:
    """Raises where a request that has a body also has a query string."""
    if scope["query_string"]:
        raise RequestError(
            "the parameters of a POST request belong in its JSON body, not in the query string."
        )


async def read_json(scope: Scope, receive: Receive, limits: Limits) -> dict[str, Any]:
    """Returns the JSON object that a request's body holds."""
    check_media_type(scope)
    return parse_json(await read_body(scope, receive, limits), limits)


def check_media_type(scope: Scope) -> None:
    """Raises unless the body is JSON in UTF-8 as it is; a form, which any page can send, is not."""
    kind, *parameters = (find_header(scope, b"content-type") or "").lower().split(";")
    if (media_type := kind.strip()) != "application/json":
        raise RequestError(
            f"the body must be JSON, and its Content-Type application/json, not {show(media_type)}: with "
            "curl, add -H 'Content-Type: application/json'.",
            415,
        )
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        if name.strip() == "charset" and (charset := value.strip(' \t"')) not in ("utf-8", "utf8"):
            raise RequestError(f"the body must be UTF-8 text, and its charset is {show(charset)}.", 415)
    encoding = find_header(scope, b"content-encoding")
    if encoding not in (None, "identity"):
        raise RequestError(f"the body must not be compressed, and its encoding is {show(encoding)}.", 415)


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Returns the body; raises where it is too long, or does not arrive in time."""
    announced = find_header(scope, b"content-length") or "0"
    too_long = RequestError(f"the body has more than {limits.body_bytes:,} bytes.", 413)
    if len(announced) > 18 or int(announced) > limits.body_bytes:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                body += message.get("body", b"")
                if len(body) > limits.body_bytes:
                    raise too_long
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise RequestError(
            f"the body did not arrive within {limits.body_seconds:g} s.", 408, Connection="close"
        ) from None


class ClientDisconnected(Exception):
    """The client closed the connection: there is no one to answer."""


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns; where the client leaves before, it is cancelled. The body must have
    been read."""
    running, watch = asyncio.create_task(work), asyncio.create_task(wait_until_disconnected(receive))
    try:
        await asyncio.wait({running, watch}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise ClientDisconnected
    finally:
        running.cancel()
        watch.cancel()
        await asyncio.gather(running, watch, return_exceptions=True)


async def wait_until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def parse_json(body: bytes, limits: Limits) -> dict[str, Any]:
    """Returns the object that a JSON text holds.

    >>> parse_json(b'{"prompt": "A B", "steps": 2}', Limits())
    {'prompt': 'A B', 'steps': 2}
    """
    text = _decode(body)
    _check_counts(body, limits)
    try:
        found = json.loads(
            text,
            object_pairs_hook=refuse_repeats,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
        )
    except json.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {quote(error)}.") from None
    except ValueError:
        raise RequestError("the body has a whole number with too many digits.") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply.") from None
    if not isinstance(found, dict):
        raise RequestError(f"the body must be a JSON object, not {show(found)}.")
    _check_values(found, limits.json_depth)
    return found


def _decode(body: bytes) -> str:
    """Returns the text of a body."""
    if not body.strip():
        raise RequestError("the body is empty: send a JSON object.")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        byte = body[error.start]
        message = f"the body is not UTF-8 text: its byte {error.start:,} is 0x{byte:02x}."
        raise RequestError(message) from None
    if text.startswith("\ufeff"):
        raise RequestError("the body begins with a byte order mark: send UTF-8 without it.")
    return text


def _check_counts(body: bytes, limits: Limits) -> None:
    """Raises where a body has more values than are read in a moment, before any is made: the event loop
    waits for the parser. Only what stands outside its texts is counted."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    texts, outside = plain.count(b'"') // 2, b""
    if texts <= limits.json_texts:
        outside = b"".join(plain.split(b'"')[::2])
    containers = outside.count(b"[") + outside.count(b"{")
    values = outside.count(b",") + containers + 1
    for count, most, what in (
        (texts, limits.json_texts, "texts, keys among them"),
        (containers, limits.json_containers, "lists and objects"),
        (values, limits.json_values, "values"),
    ):
        if count > most:
            raise RequestError(f"the body has {count:,} {what}; {most:,} are the most. Send it in parts.")


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"the body is not JSON: {name} is not a JSON value.")


def _parse_float(text: str) -> float:
    if not isfinite(value := float(text)):
        raise RequestError(f"the body has a number that is too large: {show(text)}.")
    return value


def _check_values(found: Any, depth: int) -> None:
    """Raises where values are nested too deeply, or a text has half of a surrogate pair.

    It goes level by level: a body of millions of values is checked in a fraction of a second.
    """
    level = [found]
    while level:
        entries: list[Any] = []
        for container in level:
            entries += container  # of an object its keys
            if isinstance(container, dict):
                entries += container.values()
        depth -= 1
        if entries and depth < 0:
            raise RequestError("the body is nested too deeply.")
        kinds = set(map(type, entries))  # most often numbers alone
        texts = [entry for entry in entries if type(entry) is str] if str in kinds else []
        if not _is_encodable("".join(texts)):
            text = next(text for text in texts if not _is_encodable(text))
            raise RequestError(f"{show(text)} is not Unicode text: it has half of a surrogate pair.")
        is_leaf = kinds.isdisjoint((dict, list))
        level = [] if is_leaf else [entry for entry in entries if type(entry) in (dict, list)]


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
