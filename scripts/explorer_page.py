"""docs/explorer.md with its tables of keys, questions and limits, and the output of its commands."""

import re
from collections.abc import Iterator

from generation_page import run_examples

from pellucid.base.formatting import format_bytes
from pellucid.base.schema import Field
from pellucid.server.explorer import find_question, list_questions
from pellucid.server.explorer.bundle import read_page_files
from pellucid.server.explorer.export import LARGEST, LIKELIEST
from pellucid.server.explorer.question import get_method, is_looked_up, read_signature
from pellucid.server.explorer.session import MOST_BYTES, MOST_TRACES

LIMITS = {
    "size": format_bytes(LARGEST),
    "likeliest": LIKELIEST,
    "traces": MOST_TRACES,
    "bytes": format_bytes(MOST_BYTES),
}
_KEY = re.compile(r'^  \["(?P<key>[^"]+)", (?:"\w+", [^"]*(?:"\w+", )?)?"(?P<what>[^"]+)"\],$', re.MULTILINE)


def explorer_page(text: str) -> str:
    """Returns the page with its tables made anew and each command run."""
    for name, rows in (("keys", keys()), ("questions", questions())):
        body = "\n".join(rows)
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, found = re.subn(pattern, lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
        assert found == 1, f"docs/explorer.md has no place for its {name}"
    for name, number in LIMITS.items():
        text, found = re.subn(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", rf"\g<1>{number}\g<2>", text)
        assert found == 1, f"docs/explorer.md has no place for its {name}"
    return run_examples(text)


def keys() -> Iterator[str]:
    """Yields the table of keys as keys.js has it."""
    yield "| key | does |"
    yield "|---|---|"
    for found in _KEY.finditer(read_page_files()["keys.js"].decode()):
        yield f"| `{found['key'].replace(' ', 'Space', found['key'].endswith(' '))}` | {found['what']} |"


def questions() -> Iterator[str]:
    """Yields the table of questions as the signatures of their files have it."""
    yield "| question | parameters | answer |"
    yield "|---|---|---|"
    for name in list_questions():
        module = find_question(name)
        listed = ", ".join(map(_parameter, read_signature(module.answer)))
        meaning = (module.__doc__ or "").partition(": ")[2].rstrip(".\n").partition("\n\n")[0]
        post = " (POST)" if get_method(name) == "POST" else ""
        yield f"| `{name}`{post} | {listed} | {' '.join(meaning.split())} |"


def _parameter(field: Field) -> str:
    limits, (least, most) = "", (field.least, field.most)
    if field.type in (int, float) and least is not None and most is not None:
        limits = f" {_number(least)} to {_number(most)}"
    elif most is not None and not is_looked_up(field):
        limits = f" ≤ {most:,.0f}"
    return f"`{field.name}`{limits}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
