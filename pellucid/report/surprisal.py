"""Tokens of a text on a page, each with a background by its surprisal −ln p."""

import re
from bisect import bisect
from collections.abc import Iterator

from pellucid.report.page import escape_text

SURPRISAL_LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 7.0)
"""Where the next color begins, in nats."""
TOKEN_STYLE = """\
:root { --s0: transparent; --s1: #fff6d6; --s2: #fee391; --s3: #fec44f; --s4: #fb9a3c; --s5: #d9610f; \
--s6: #96360a;
  --on5: #fff; }
@media (prefers-color-scheme: dark) { :root {
  --s1: #362d1c; --s2: #59431a; --s3: #80590f; --s4: #ad730e; --s5: #e29a2a; --s6: #ffd27a; --on5: \
#1b1405; } }
.legend { display: flex; flex-wrap: wrap; gap: .35rem .9rem; align-items: center; margin: 1.1rem 0 \
.3rem; padding: 0;
          list-style: none; font-size: .86rem; color: var(--faint); }
.legend li { display: flex; gap: .4rem; align-items: center; }
.legend .t { margin: 0; padding: 0 .45em; line-height: 1.5; color: var(--ink); }
.legend .s5, .legend .s6 { color: var(--on5); }
.t { display: inline-block; padding: 0 .12em .16em; margin: 0 1px; line-height: 1.5; border-radius: 3px; \
cursor: pointer;
     border-top: 2px solid transparent; background-clip: padding-box;
     white-space: pre-wrap; max-width: 100%; font-family: "DejaVu Sans Mono", Consolas, Menlo, monospace; }
.t i { font-style: normal; opacity: .45; }
.s0 { box-shadow: inset 0 -1px var(--rule); }
.s1 { background: var(--s1); box-shadow: inset 0 -1px var(--s3); }
.s2 { background: var(--s2); box-shadow: inset 0 -2px var(--s4); }
.s3 { background: var(--s3); box-shadow: inset 0 -3px var(--s5); }
.s4 { background: var(--s4); box-shadow: inset 0 -4px var(--s6); color: #1f1403; }
.s5 { background: var(--s5); box-shadow: inset 0 -5px var(--s6); color: var(--on5); }
.s6 { background: var(--s6); box-shadow: inset 0 -6px var(--ink); color: var(--on5); }
@media print { .t { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
"""The style of tokens and of their legend, for light pages and dark ones."""
_BLANKS = re.compile(r"(·+|(?:\\n|\\t)+)")


def compute_level(surprisal: float) -> int:
    """Returns the color of a surprisal, from 0 to 6.

    >>> compute_level(0.05), compute_level(1.0), compute_level(20)
    (0, 3, 6)
    """
    return bisect(SURPRISAL_LEVELS, surprisal)


def draw_token(text: str, surprisal: float | None, attributes: str = "", kinds: str = "") -> str:
    """Returns a token, as `Tokenizer.visible` shows it, with its color; without one where the surprisal is
    None. A line ends where the token ends one."""
    level = "" if surprisal is None else f" s{compute_level(surprisal)}"
    shown = _BLANKS.sub(r"<i>\1</i>", escape_text(text) or "(empty)")
    line_end = "<br>" if text.endswith("\\n") else ""
    return f'<span class="t{level}{kinds}"{attributes}>{shown}</span>{line_end}'


def draw_legend(*more: str) -> Iterator[str]:
    """Yields a list of what the colors mean, and further items."""
    yield '<ul class="legend" aria-label="colors: the surprisal of a token">'
    yield "<li>surprisal −ln p, in nats:</li>"
    ends = [f"{level:g}" for level in SURPRISAL_LEVELS]
    words = [f"below {ends[0]}", *(f"to {end}" for end in ends[1:]), f"{ends[-1]} and more"]
    for level, word in enumerate(words):
        yield f'<li><span class="t s{level}">·a</span>{word}</li>'
    yield from more
    yield "</ul>"
