"""Pages of HTML that need nothing from elsewhere: a template with places to fill, and a policy by hashes."""

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape

from pellucid.base.formatting import escape_controls

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def fill_page(template: str, parts: Mapping[str, str], script: str = "") -> str:
    """Returns a template with each {{NAME}} replaced by its part.

    {{SCRIPT}} is the script, and {{STYLE_HASH}} and {{SCRIPT_HASH}} are what a Content-Security-Policy says
    so that the page's own style and script are used, and no others.
    """

    def fill(text: str, parts: Mapping[str, str]) -> str:
        return _PLACE.sub(lambda place: parts[place[1]], text)

    start, end = template.index("<style>") + len("<style>"), template.index("</style>")
    style = fill(template[start:end], parts)
    hashes = {"STYLE_HASH": hash_source(style), "SCRIPT_HASH": hash_source(f"\n{script}")}
    parts = {**parts, **hashes, "SCRIPT": script}
    return fill(template[:start], parts) + style + fill(template[end:], parts)


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
