"""Requests made of the table of fields: values that are accepted, values that are not, and any others.

`field_cases` has both kinds of each field, at its bounds and one beyond; `draw_body` draws whole requests.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st

from pellucid.base.arguments import INT64, LARGEST_VOCABULARY
from pellucid.base.schema import Field
from pellucid.generation.settings.table import (
    MOST_BIAS,
    MOST_BIASES,
    MOST_SCHEMA,
    MOST_STOP_LENGTH,
    SETTINGS,
    SMALLEST_TEMPERATURE,
    Biases,
    Samplers,
    Stops,
    TokenId,
)
from pellucid.server.openai.fields import (
    ALL,
    GENERATION,
    MOST_INPUTS,
    MOST_PARTS,
    MOST_PROMPTS,
    PART,
    FieldEndpoint,
    get_fields,
)
from pellucid.server.openai.reading.field import MOST_IDS, RequestField, RequestObject

SMALLEST: dict[FieldEndpoint, dict[str, Any]] = {
    "completions": {"prompt": "A"},
    "chat": {"messages": [{"role": "user", "content": "A"}]},
    "embeddings": {"input": "A"},
    "tokenize": {"prompt": "A"},
    "detokenize": {"tokens": [1]},
}
"""A request of each endpoint with the fields alone that it needs."""
COMPANIONS: dict[tuple[FieldEndpoint, str], dict[str, Any]] = {
    ("chat", "top_logprobs"): {"logprobs": True},
    ("completions", "max_tokens"): {"echo": True},
    **{(place, "stream_options"): {"stream": True} for place in GENERATION},
    ("tokenize", "messages"): {"prompt": None},
    **{(place, "keep"): {"context": "roll"} for place in GENERATION},
}
"""What a field needs beside it."""
HOSTILE = (
    "", " ", "\0", "\u202e", "\ufeff", "\ufffe", "🧑‍🚀", "e\u0301", "<|endoftext|>", "<script>", "{{ 7*7 }}",
    "${7*7}", "../../etc/passwd", "data: [DONE]\n\n", "\r\nX-A: b\r\n", "'; --", "null", "NaN", "-0",
    "%00", "\x1b[2J", "a" * 300,
)  # fmt: skip
CONFUSING = (True, False, 0, 1, -1, -0.0, 0.5, 1e308, -1e308, 5e-324, 2**31, 2**63, -(2**63) - 1, 10**400)
"""Numbers that readers confuse or cannot hold."""


@dataclass(frozen=True)
class Cases:
    """Values that a type accepts, and values that it refuses."""

    good: tuple[Any, ...]
    bad: tuple[Any, ...]


def integers(least: int, most: int) -> Cases:
    outside = (least - 1, most + 1, INT64[1] + 1, INT64[0] - 1, 10**400)
    wrong = (True, False, 1.0, -0.0, 0.5, "1", "", [], [1], {})
    return Cases((least, most, (least + most) // 2), (*outside, *wrong))


def numbers(least: float, most: float, smallest: float = 0.0) -> Cases:
    good = [least, most, (least + most) / 2, *([0, 0.0, -0.0] if least <= 0 <= most else [])]
    bad = [math.nextafter(least, -math.inf), math.nextafter(most, math.inf), least - 1, most + 1]
    bad += [2**63, 1e308, -1e308, 10**400, True, False, "1", "", [], {}, math.nan, math.inf]
    if smallest:
        good, bad = [*good, smallest], [*bad, smallest / 2, -smallest]
    return Cases(tuple(good), tuple(bad))


def texts(longest: int, example: str = "A") -> Cases:
    good, bad = [example, "A"], [1, 0.5, True, [], ["A"], {}]
    if longest < 200_000:
        good.append("A" * longest)
        bad.append("A" * (longest + 1))
    return Cases(tuple(good), tuple(bad))


def token_lists(longest: int) -> Cases:
    bad = ([True], [-1], [LARGEST_VOCABULARY], [1.0], ["1"], [[1]], [None], "1", "", {}, 0.5)
    good = ([1], [0, LARGEST_VOCABULARY - 1])
    if longest < 200_000:
        good, bad = (*good, [1] * longest), (*bad, [1] * (longest + 1))
    return Cases((*good, []), bad)


JSON_SCHEMA = SETTINGS["json_schema"]


def value_cases(row: RequestField) -> Cases:
    """Returns values of a used field at its bounds and beyond them, and of other types."""
    least, most = (int(bound) if abs(bound) < math.inf else 0 for bound in row.bounds)
    if row.choices:
        return Cases(tuple(row.choices), (*row.refusals, "", "x", "A" * 300, 1, True, [], {}))
    if row.inner is not None:
        return inner_cases(row, row.inner)
    if row.words == JSON_SCHEMA.words:
        found = texts(MOST_SCHEMA, JSON_SCHEMA.example)
        bad = tuple(value for value in found.bad if value != {})
        return Cases((*found.good, {"type": "integer"}, {}), (*bad, {"description": "A" * MOST_SCHEMA}))
    if row.type is bool:
        return Cases((True, False), (0, 1, 0.0, "true", "", [], {}))
    if row.type is int:
        return integers(least, most)
    if row.type is float:
        return numbers(*row.bounds, SMALLEST_TEMPERATURE if row.name == "temperature" else 0.0)
    if row.type is str:
        return texts(most, row.example or "A")
    if row.type is Any:
        return prompt_cases({"prompt": MOST_PROMPTS, "input": MOST_INPUTS}[row.name])
    return token_lists(most) if row.type not in LISTS else LISTS[row.type](row)


def stop_cases(row: Field) -> Cases:
    good = (row.example, "A", [], ["A"] * 16, ["A" * MOST_STOP_LENGTH])
    return Cases(good, (["A"] * 17, ["A" * (MOST_STOP_LENGTH + 1)], [""], "", [1], 1, {}))


def bias_cases(row: Field) -> Cases:
    good = ({"1": MOST_BIAS, "2": -MOST_BIAS}, {}, {str(id): 0 for id in range(MOST_BIASES)})
    bad = (
        {str(id): 0 for id in range(MOST_BIASES + 1)}, {"1": MOST_BIAS + 1}, {"1": True}, {"1": "1"},
        {"1": None}, {"a": 1}, {"1": 0, "01": 0}, {"-1": 0}, {"": 0}, {"٣": 0}, {str(10**400): 0}, [], 1, "1",
    )  # fmt: skip
    return Cases(good, bad)


def sampler_cases(row: Field) -> Cases:
    bad = (["x"], [{}], [{"kind": "min_p", "x": 1}], [{"kind": 1}], [1], [[]], 1)
    one, most = row.example[0], int(row.bounds[1])
    return Cases((row.example, one, [one] * most, []), ("x", *bad, [one] * (most + 1)))


LISTS: Mapping[Any, Callable[[Field], Cases]] = {
    Stops: stop_cases,
    Biases: bias_cases,
    Samplers: sampler_cases,
    list[TokenId]: lambda row: ids_cases(),
}


def ids_cases() -> Cases:
    found = token_lists(MOST_IDS)
    return Cases(found.good, (*found.bad, 1))


def prompt_cases(most: int) -> Cases:
    good = ("A", [1, 2], ["A", "B"], [[1], [2, 3]], ["A"] * most, *filter(None, HOSTILE))
    bad = ([], ["A"] * (most + 1), ["A", 1], [1, "A"], [[1], []], [["A"]], [[[1]]], [None], 1, 0.5, {}, True)
    return Cases(good, (*bad, [-1], [LARGEST_VOCABULARY], [True], [0.5]))


def inner_cases(row: RequestField, inner: RequestObject) -> Cases:
    """Returns cases of an object, of a list of objects, and of the two that are more than that."""
    if row.name == "content":
        parts = list_cases(object_cases(PART), 1, MOST_PARTS)
        return Cases((*HOSTILE, *parts.good), tuple(one for one in parts.bad if not isinstance(one, str)))
    if row.name == "response_format":
        return format_cases(inner)
    if row.type is inner:
        return object_cases(inner)
    return list_cases(object_cases(inner), *map(int, row.bounds))


def object_cases(type: RequestObject) -> Cases:
    base = {name: field_cases(row).good[0] for name, row in type.fields.items() if row.is_required}
    good, bad = [base], [[], "", "x", 1, True, {**base, "x": 1}, {**base, "": 1}]
    for name, row in type.fields.items():
        found = field_cases(row)
        good += [{**base, name: value} for value in found.good]
        bad += [{**base, name: value} for value in found.bad]
        bad += [{key: value for key, value in base.items() if key != name}] if row.is_required else []
    return Cases(tuple(good), tuple(bad))


def format_cases(type: RequestObject) -> Cases:
    """Its fields go together in two ways only."""
    schema = field_cases(type.fields["json_schema"])
    found = object_cases(RequestObject(type.what, {"type": type.fields["type"]}))
    good = [{"type": "text"}, *({"type": "json_schema", "json_schema": value} for value in schema.good)]
    bad = [{"type": "json_schema", "json_schema": value} for value in schema.bad]
    return Cases(
        tuple(good), (*found.bad, *bad, {"type": "json_schema"}, {"type": "text", "json_schema": good[1]})
    )


def list_cases(inner: Cases, least: int, most: int) -> Cases:
    good = [[value] for value in inner.good] + [[inner.good[0]] * most]
    bad = [[value] for value in inner.bad] + [[inner.good[0]] * (most + 1), [None], "", 1, {}]
    return Cases(tuple(good), (*bad, *([[]] if least else ())))


def field_cases(row: RequestField) -> Cases:
    """Returns values with which a field is accepted and refused; null is not among them."""
    if row.fate == "used":
        return value_cases(row)
    junk = ("x", 17, 0.25, True, ["x"], {"x": 1})
    if row.fate == "ignored":
        return Cases(junk, ())
    neutral = (*row.neutral, *((row.same_default,) if row.same_as else ()))
    return Cases(neutral, tuple(value for value in junk if not row.is_neutral(value, {})))


@cache
def endpoint_cases(endpoint: FieldEndpoint) -> Mapping[str, Cases]:
    """Returns the cases of every field of an endpoint."""
    return {name: field_cases(row) for name, row in get_fields(endpoint).items()}


def walk_cases(endpoint: FieldEndpoint) -> Iterator[tuple[str, Any, bool, dict[str, Any]]]:
    """Yields every case of an endpoint: the field, its value, whether it is good, and the whole request."""
    for name, found in endpoint_cases(endpoint).items():
        beside = {**SMALLEST[endpoint], **COMPANIONS.get((endpoint, name), {})}
        for value, is_good in [(value, True) for value in found.good] + [
            (value, False) for value in found.bad
        ]:
            if not (endpoint == "chat" and name.startswith("max_") and value == 0):
                yield name, value, is_good, {**beside, name: value}


# ---- whole requests


def draw_word(random: Random) -> str:
    """Draws a text that some reader stumbles over, or any characters."""
    if random.random() < 0.7:
        return random.choice(HOSTILE)
    codes = (random.choice((0x80, 0x300, 0xD7FF, 0x10FFFF)) for _ in range(random.randrange(1, 9)))
    return "".join(chr(random.randrange(code)) for code in codes)


def draw_junk(random: Random, depth: int = 3) -> Any:
    """Draws any value of JSON."""
    kind = random.randrange(7 if depth else 4)
    if kind >= 5:
        return [draw_junk(random, depth - 1) for _ in range(random.randrange(4))]
    if kind == 4:
        return {draw_word(random): draw_junk(random, depth - 1) for _ in range(random.randrange(4))}
    return (None, random.choice(CONFUSING), random.uniform(-1e3, 1e3), draw_word(random))[kind]


def draw_value(random: Random, found: Cases) -> Any:
    """Draws a value of a field, mostly one that it refuses."""
    kind = random.randrange(6)
    if kind < 1 and found.good:
        return random.choice(found.good)
    if kind < 5 and found.bad:
        return random.choice(found.bad)
    return draw_junk(random) if random.randrange(4) else None


def draw_body(random: Random, endpoint: FieldEndpoint) -> dict[str, Any]:
    """Draws a request of an endpoint: what it needs, and a few other fields, known or not. In two thirds of
    the requests each known field has a value that it accepts."""
    cases, is_good = endpoint_cases(endpoint), random.randrange(3) > 0
    names, body = list(cases), dict(SMALLEST[endpoint])
    for _ in range(random.randrange(5)):
        name = random.choice(names)
        good = cases[name].good or (None,)
        body[name] = random.choice(good) if is_good else draw_value(random, cases[name])
        if is_good or random.randrange(2):
            body = {**COMPANIONS.get((endpoint, name), {}), **body}
    kind = random.randrange(20)
    if kind == 0:
        body[draw_word(random)] = draw_junk(random)
    elif kind == 1:
        typo = list(random.choice(names))
        typo[random.randrange(len(typo))] = random.choice("aeiou_")
        body["".join(typo)] = draw_junk(random)
    elif kind == 2:
        body.pop(random.choice(list(body)))
    return body


requests = st.tuples(st.sampled_from(ALL), st.randoms(use_true_random=False))
"""An endpoint, and the random numbers of a request; they shrink, and the request with them."""
