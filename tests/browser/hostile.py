"""Sixty and more texts that a careless page would run, load, hide or stumble over; none has a blank."""

RUN = "window.__pwned=1"
"""What each script would do; a test then finds `__pwned` on the page."""
ELSEWHERE = "//evil.test/x"
SCRIPTS = [
    f"<script>{RUN}</script>", f"</script><script>{RUN}</script>", f"<SCRIPT/x>{RUN}//",
    f"<img/src=x/onerror={RUN}>", f"<svg/onload={RUN}>", f"<body/onload={RUN}>",
    f"<details/open/ontoggle={RUN}>", f"<input/autofocus/onfocus={RUN}>",
    f"<iframe/src='javascript:parent.{RUN}'>", f"<iframe/srcdoc='<script>parent.{RUN}</script>'>",
    f"<math><mtext><img/src=x/onerror={RUN}>", f"<marquee/onstart={RUN}>", f"\"><img/src=x/onerror={RUN}>",
    f"'><img/src=x/onerror={RUN}>", f"`><img/src=x/onerror={RUN}>", f"'-({RUN})-'", f"\"-({RUN})-\"",
    f"\\\";{RUN}//", f"${{{RUN}}}", f"{{{{constructor.constructor('{RUN}')()}}}}", f"<%={RUN}%>",
    f"#{{{RUN}}}", f"javascript:{RUN}", f"JaVaScRiPt:{RUN}", f"data:text/html,<script>{RUN}</script>",
    f"vbscript:{RUN}", f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"<noscript><p/title=\"</noscript><img/src=x/onerror={RUN}>\">",
    f"<template><script>{RUN}</script></template>", f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"<style>@import'{ELSEWHERE}'</style>", f"<!--><script>{RUN}</script>",
]  # fmt: skip
LOADS = [
    f"<link/rel=stylesheet/href={ELSEWHERE}>", f"<img/src={ELSEWHERE}>", f"<base/href={ELSEWHERE}>",
    f"<meta/http-equiv=refresh/content='0;{ELSEWHERE}'>", f"<object/data={ELSEWHERE}>", f"url({ELSEWHERE})",
    f"<form/action={ELSEWHERE}><input/type=submit>", f"<a/href={ELSEWHERE}/ping={ELSEWHERE}>x</a>",
]  # fmt: skip
MARKS = [
    "</script>", "<!--", "-->", "]]>", "<![CDATA[x]]>", "</style>*{display:none}", "</title>", "<!DOCTYPE>",
    "&amp;&#x3c;&lt", "';DROP/**/TABLE/**/runs;--", "../../../../etc/passwd", "%2e%2e%2f%00",
    "a[t=0]/b?c=d&e#f%25",
]  # fmt: skip
UNSEEN = [
    "\u202egnp.exe",
    "a\u200bb\u200d\ufeff",
    "\u2066x\u2069\u061c",
    "\x1b[31mred\x07\x7f",
    "\\ud800\\udfff",
]
KEYS = ["__proto__", "constructor", "toString", "hasOwnProperty", "e\u0301" * 40, "x" * 4000]
STRINGS = [*SCRIPTS, *LOADS, *MARKS, *UNSEEN, *KEYS]
