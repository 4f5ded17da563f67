"""The page as one file: its modules joined in the order of their imports, its style, and embedded answers.

A module that is opened from a file cannot import another, so the modules become one script. Each defines its
own top-level names, which makes joining them safe: import lines go, and `export` is removed.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

from pellucid.base.notebook import escape_html

POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy of a page in one file: it runs its own script alone, and fetches nothing."""
_IMPORT = re.compile(r"^import\s+(?:\{[^}]*\}\s+from\s+)?\"\./(?P<module>[\w-]+\.js)\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function|class|const|let)\b)", re.MULTILINE)
_STYLE = '<link rel="stylesheet" href="page.css">'
_SCRIPT = '<script type="module" src="main.js"></script>'


@cache
def read_page_files() -> dict[str, bytes]:
    """Returns the content of each file of the page, by name."""
    folder = resources.files("pellucid.server.explorer") / "page"
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir(), key=lambda file: file.name)}


def join_modules(sources: Mapping[str, str], first: str = "main.js") -> str:
    """Returns one script: every module that `first` imports, each after those that it imports itself.

    >>> join_modules({"main.js": 'import {f} from "./f.js";\\nf();\\n', "f.js": "export function f() {}\\n"})
    'function f() {}\\nf();\\n'
    """
    joined: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in joined:
            return
        if name in above:
            raise ValueError(f"the modules import each other: {' → '.join((*above, name))}")
        for found in _IMPORT.finditer(sources[name]):
            add(found["module"], (*above, name))
        joined[name] = _EXPORT.sub("", _IMPORT.sub("", sources[name]))

    add(first, ())
    return "".join(joined.values())


def make_question_string(question: str, parameters: Mapping[str, Any]) -> str:
    """Returns a question with its parameters as the page writes it: keys sorted, each part URL-encoded.

    >>> make_question_string("cell", {"trace": "t1", "at": "probs[t=1,v=2]", "flatten": True})
    'cell?at=probs%5Bt%3D1%2Cv%3D2%5D&flatten=true&trace=t1'
    """

    def encode(value: Any) -> str:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return quote(text, safe="!'()*~")  # what encodeURIComponent keeps

    pairs = (f"{encode(key)}={encode(parameters[key])}" for key in sorted(parameters))
    return f"{question}?{'&'.join(pairs)}" if parameters else question


def encode_json(data: Any) -> str:
    """Returns data as JSON that can stand inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # `<` could begin an end tag; a lone surrogate cannot be encoded as UTF-8
    return re.sub("[<\u2028\u2029\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def make_document(answers: Mapping[str, str], title: str) -> str:
    """Returns the page with answers, each JSON text under its question string."""
    files = {name: content.decode() for name, content in read_page_files().items()}
    script = join_modules({name: text for name, text in files.items() if name.endswith(".js")})
    style, page = files["page.css"], files["index.html"]
    for text, tag in ((script, "</script"), (style, "</style")):
        if tag in text.lower():
            raise ValueError(f"a file of the page contains {tag}")
    policy = POLICY.format(script=_hash(script), style=_hash(style))
    body = ",\n".join(f"{encode_json(question)}:{answer}" for question, answer in answers.items())
    data = f'<script type="application/json" id="answers">{{{body}}}</script>'
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    for mark, new in (
        (_STYLE, f"{meta}\n<style>{style}</style>"),
        (_SCRIPT, f'{data}\n<script type="module">{script}</script>'),
    ):
        before, found, after = page.partition(mark)
        if not found:
            raise ValueError(f"index.html has no {mark}")
        page = f"{before}{new}{after}"
    return re.sub("<title>[^<]*</title>", lambda _: f"<title>{escape_html(title)}</title>", page, count=1)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
