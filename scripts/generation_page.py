"""docs/generation.md with the output of its commands and examples, and tables of samplers and presets."""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from unittest import mock

from python_page import _inside, _output

from pellucid.cli import main
from pellucid.cli.chat_commands import COMMANDS
from pellucid.generation.conversation import ANSWER_TOKENS
from pellucid.generation.settings.resolve import PRESETS, format_value
from pellucid.generation.settings.sampling import DEFAULT_NEW_TOKENS
from pellucid.parts import find, kinds
from pellucid.parts.samplers import Sampler


def generation_page(text: str) -> str:
    """Returns the page with each command and example run in order, and its tables made anew."""
    for name, rows in (("presets", presets()), ("samplers", samplers()), ("commands", chat_commands())):
        body = "\n".join(rows)
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, found = re.subn(pattern, lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
        assert found == 1, f"docs/generation.md has no place for its {name}"
    for name, number in (("default", DEFAULT_NEW_TOKENS), ("answer", ANSWER_TOKENS)):
        text = re.sub(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", rf"\g<1>{number}\g<2>", text)
    return run_examples(text)


def run_examples(text: str) -> str:
    """Returns a page with each command and example run in order, in one folder, and its output below it."""
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        if block["command"]:
            return f"```text\n$ {block['command']}\n{run_command(block['command'])}```\n"
        return f"```python\n{block['code']}```\n\n```text\n{_output(block['code'], names)}```\n"

    command = r"```text\n\$ (?P<command>pellucid [^\n]*)\n.*?```\n"
    example = r"```python\n(?P<code>.*?)```\n\n```text\n.*?```\n"
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        return re.sub(f"{command}|{example}", run, text, flags=re.DOTALL)


def run_command(line: str) -> str:
    """Returns what a command prints, on both streams, without the versions and the machine."""
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", shlex.split(line)),
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        contextlib.suppress(SystemExit),
    ):
        main()
    text = re.sub(r"(?m)^(computed by  ).*$", r"\1…", out.getvalue())
    return re.sub(r"(?m) +$", "", text)


def presets() -> Iterator[str]:
    yield "| preset | for | settings |\n|---|---|---|"
    for name, preset in PRESETS.items():
        settings = ", ".join(f"{key} {format_value(value)}" for key, value in preset.settings.items())
        yield f"| `{name}` | {preset.purpose} | {settings} |"


def chat_commands() -> Iterator[str]:
    yield "| command | what it does |\n|---|---|"
    for name, command in COMMANDS.items():
        yield f"| `{f'/{name} {command.argument}'.rstrip()}` | {command.meaning} |"


def samplers() -> Iterator[str]:
    """A line for every sampler, in the order in which they run."""
    yield "| sampler | what it does | formula |\n|---|---|---|"
    found: list[type[Sampler]] = [find("samplers", kind) for kind in kinds("samplers")]  # type: ignore[misc]
    for sampler in sorted(found, key=lambda kind: kind.order):
        module = sys.modules[sampler.__module__]
        idea = (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")
        formula = sampler.formula.replace("|", "\\|")
        yield f"| `{sampler.kind}` | {idea} | `{formula}` |"
