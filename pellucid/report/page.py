"""The one page of every result: title, the sentence that says what was found, numbers, pictures.

    make_page("pellucid evaluate", "How well a model predicts", "The loss is 2.05 nats a token.", body)

It needs nothing from elsewhere, and its policy allows its own style and script alone, by their hashes.
"""

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pellucid.base.formatting import escape_controls

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="generator" content="{{GENERATOR}}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src '{{STYLE_HASH}}'{{MORE_POLICY}}">
<meta name="viewport" content="width=device-width">
<title>{{TITLE}}</title>
<style>{{STYLE}}</style>
<header>
<h1>{{HEADING}}</h1>
{{LEAD}}
</header>
{{BODY}}
{{SCRIPTS}}</html>
"""
_PLACE = re.compile(r"\{\{(\w+)\}\}")
FOLDER = Path(__file__).parent


@cache
def read_style(path: Path = FOLDER / "page.css") -> str:
    """Returns a file of style rules."""
    return path.read_text("utf-8")


def make_page(
    generator: str,
    title: str,
    lead: str,
    body: str,
    *,
    style: str = "",
    script: str = "",
    data: Any = None,
    has_style_attributes: bool = False,
) -> str:
    """Returns a page. `title` and `lead` are texts, `body` is HTML; `style` follows the rules of all pages,
    and `data` is what the script reads as JSON from the element #data."""
    from pellucid.report.page_colors import plot_rules  # drawings are imported where one may be shown

    rules = f"\n{read_style()}{style}{plot_rules(body)}"
    policy, scripts = "", ""
    if script:
        values = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        values = values.replace("<", "\\u003c")
        policy += f"; script-src '{hash_source(script)}'"
        scripts = f'<script type="application/json" id="data">{values}</script>\n<script>{script}</script>\n'
    if has_style_attributes:
        policy += "; style-src-attr 'unsafe-inline'"
    parts = {
        "GENERATOR": generator,
        "STYLE_HASH": hash_source(rules),
        "MORE_POLICY": policy,
        "TITLE": escape_text(title),
        "STYLE": rules,
        "HEADING": escape_text(title),
        "LEAD": f'<p class="lead">{escape_text(lead)}</p>' if lead else "",
        "BODY": body,
        "SCRIPTS": scripts,
    }
    return _PLACE.sub(lambda place: parts[place[1]], _PAGE)


def hash_source(text: str) -> str:
    """Returns the source expression of a Content-Security-Policy that allows this text alone."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def escape_text(text: str) -> str:
    """Returns any text as text of HTML in one line, or as the value of an attribute: no markup, and nothing
    that a browser hides.

    >>> escape_text("a < b\\u202e")
    'a &lt; b\\\\u202e'
    """
    return escape(escape_controls(text, keep=""))
