"""docs/server.md with its tables of request fields."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from pellucid.server.openai.fields import FIELDS, GENERATION, FieldEndpoint, FieldRow
from pellucid.server.openai.reading.field import RequestField

TABLES: Mapping[str, tuple[FieldEndpoint, ...]] = {
    "generation": GENERATION,
    "completions": ("completions",),
    "chat": ("chat",),
    "embeddings": ("embeddings",),
    "tokenize": ("tokenize",),
    "detokenize": ("detokenize",),
}
"""The endpoints of each table: the fields that all of them have, and no table before it."""


def server_page(text: str) -> str:
    """Returns the page with its tables made anew."""
    for name, rows in list_tables().items():
        body = "\n".join(write_tables(rows))
        pattern = rf"(<!-- {name} fields -->\n).*?(<!-- /{name} fields -->)"
        text, found = re.subn(pattern, lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
        assert found == 1, f"docs/server.md has no place for its {name} fields"
    return text


def is_shared(row: FieldRow) -> bool:
    """Returns whether both endpoints that generate have a field."""
    return set(GENERATION) <= set(row.endpoints)


def list_tables() -> dict[str, list[RequestField]]:
    """Returns the fields of each table; a field stands in one table for an endpoint."""
    found: dict[str, list[RequestField]] = {}
    for name, endpoints in TABLES.items():
        rows = [row for row in FIELDS if set(endpoints) <= set(row.endpoints)]
        if len(endpoints) == 1:
            rows = [row for row in rows if endpoints[0] not in GENERATION or not is_shared(row)]
        found[name] = [row.field for row in rows]
    return found


def write_tables(fields: list[RequestField]) -> Iterator[str]:
    """Yields the tables of the used, the ignored and the refused fields."""
    flat = [(path, field) for row in fields for path, field in flatten(row, row.name)]
    yield "| field | type and bounds | default | meaning |"
    yield "|---|---|---|---|"
    for path, field in flat:
        if field.fate == "used":
            yield write_row(f"`{path}`", field.text, write_default(field), field.meaning)
    others = [(path, field) for path, field in flat if field.fate != "used"]
    if others:
        yield "\n| field | | why |"
        yield "|---|---|---|"
        ordered = sorted(others, key=lambda pair: pair[1].fate)
        for (fate, why), group in groupby(ordered, lambda pair: (write_fate(pair[1]), pair[1].meaning)):
            yield write_row(", ".join(f"`{path}`" for path, _ in group), fate, why)


def flatten(field: RequestField, path: str) -> Iterator[tuple[str, RequestField]]:
    """Yields a field and those of the objects in it, each with its place."""
    yield path, field
    if field.inner is not None:
        place = path if field.type is field.inner else f"{path}[]"
        for row in field.inner.fields.values():
            yield from flatten(row, f"{place}.{row.name}")


def write_default(field: RequestField) -> str:
    """Returns the default of a field in words or as JSON."""
    if field.is_required:
        return "required"
    if field.default_text or field.default is None:
        return field.default_text
    return write_json(field.default)


def write_fate(field: RequestField) -> str:
    """Returns whether a field is ignored or refused, and which of its values are accepted."""
    accepted = [write_json(value) for value in field.neutral]
    if field.same_as:
        accepted.append(f"the value of `{field.same_as}`")
    return f"{field.fate}, except {' and '.join(accepted)}" if accepted else field.fate


def write_json(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def write_row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
