"""The process in which an untrusted chat template runs, with limits on time, memory and output.

It reads lines of JSON and answers each with one: first {"template", "variables"}, then {"renders": …}, a list
of messages, each with its add_generation_prompt. A sandboxed template cannot reach beyond its variables,
but it can loop or allocate without end; then the kernel ends this process alone.
"""

import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

SECONDS, MEMORY, OUTPUT = 1.0, 64 << 20, 1 << 20
"""Of computing for each line; bytes over what the engine itself takes; characters of one text."""


def environment() -> Any:
    """The engine as the templates of model files expect it, which is what `transformers` gives them. The date
    is not there, so that the same messages give the same text tomorrow."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """{% generation %} … {% endgeneration %} marks an answer, and writes what is inside."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def namespace(**values: Any) -> Namespace:
        if hidden := [name for name in values if name.startswith("_")]:
            raise TemplateError(f"{hidden[0]} is not a valid name: it begins with _")
        return Namespace(values)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **settings: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **settings)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals = {
        "range": made.globals["range"],
        "dict": lambda **values: values,
        "namespace": namespace,
        "raise_exception": refuse,
    }
    return made


def limit() -> None:
    """From here on, no more memory than that; a template's text is compiled under it too."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        most = int(statm.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def render(template: Any, messages: Any, asking: bool) -> str:
    pieces, size = [], 0
    for piece in template.generate(messages=messages, add_generation_prompt=asking):
        size += len(piece)
        if size > OUTPUT:
            raise ValueError(f"it writes more than {OUTPUT:,} characters")
        pieces.append(piece)
    return "".join(pieces)


def main() -> None:
    made, template = environment(), None
    limit()
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process, whatever that is doing
        try:
            asked = json.loads(line)
            if template is None:
                template = made.from_string(asked["template"], globals=asked["variables"])
                answer: Any = {}
            else:
                answer = {"texts": [render(template, *arguments) for arguments in asked["renders"]]}
        except MemoryError:
            answer = {"error": f"it takes more than {MEMORY >> 20} MB"}
        except Exception as error:
            answer = {"error": f"{error}"[:300] or type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
