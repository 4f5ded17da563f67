"""Write every page that the code can write; with --check, only say whether they are up to date.

The README's tree, its example and the pages below are made here, so they cannot drift from the code.
"""

import ast
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from choices_page import choices_files
from code_page import code_page
from explorer_page import explorer_page
from generation_page import generation_page, run_examples
from lessons_page import lesson_files
from looks_page import looks_page
from messages_page import messages_page
from python_page import python_page
from recipes_page import recipes_page
from server_page import server_page

from pellucid.base import names as glossary_names
from pellucid.base.names import LETTERS, PARAMETERS_AND_VALUES, Name
from pellucid.cli.app import EXAMPLES, EXIT_CODES, command_tree, leaf_commands
from pellucid.config import ModelConfig
from pellucid.explanation.formula import build_formula
from pellucid.explanation.trace import Trace
from pellucid.formats import library
from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets
from pellucid.learning.sheets.file import write_sheet
from pellucid.learning.sheets.planted import answer_sheet, find_plants
from pellucid.reference.op import Op
from pellucid.reference.ops import table
from pellucid.reference.optimizers import update
from pellucid.reference.training import forward
from pellucid.reference.transformer import cache
from pellucid.training.distributed.scaling import table as shares

ROOT = Path(__file__).parent.parent
REAL = ["explain", "smollm2", "The cat sat on", "--at", "blocks.5.attn.pattern[h=3,t=3,s=1]", "--depth", "2"]
MADE = "<!-- made by `make docs`; do not edit -->\n\n"


def purpose(file: Path) -> str:
    """Returns the first line of a file's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


def layers() -> list[list[str]]:
    """Returns the package's layers, the lowest first, from the test that checks the imports."""
    tree = ast.parse((ROOT / "tests" / "architecture" / "test_layers.py").read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    return [list(names) for names in ast.literal_eval(value)]


def tree() -> Iterator[str]:
    """Yields the package as the README shows it: each room imports only those before it."""
    yield "pellucid/           in the order to read it: each room imports only those before it"
    for name in (name for names in layers() for name in names):
        folder, file = ROOT / "pellucid" / name, ROOT / "pellucid" / f"{name}.py"
        if file.exists():
            yield f"  {file.name:<17} {purpose(file)}"
        elif (folder / "__init__.py").exists():
            yield f"  {name + '/':<17} {purpose(folder / '__init__.py')}"
    yield "tests/              Claims: mirrors the package, plus agreement, golden numbers and architecture"
    yield "docs/               Commands, messages, choices, glossary, decisions, and the log of experiments"
    yield "benchmarks/         Speed measurements, beside limits and peers"


def shell(arguments: list[str]) -> str:
    """Returns a command as one types it."""
    quoted = (f'"{word}"' if re.search(r"[^\w.@/-]", word) else word for word in arguments)
    return f"$ pellucid {' '.join(quoted)}"


def output(arguments: list[str], cwd: Path | None = None, code: int = 0) -> str:
    """Returns what a command prints; it must end with the exit code."""
    command = [sys.executable, "-m", "pellucid.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=cwd, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.rstrip()


def marked_sheet() -> str:
    """Returns what `pellucid mark` says of a learner of lesson 13 who makes one mistake, and goes on with its
    number until the attention pattern."""
    sheet = lesson_sheets(find_lesson(13))[0]
    plant = next(plant for plant in find_plants(sheet) if plant.mistake == "scores without 1/√D")
    last = max(i for i, box in enumerate(sheet.boxes) if box.step == "blocks.0.attn.pattern")
    answers = answer_sheet(sheet, plant).answers
    done = {box.key: answers[box.key] for box in sheet.boxes[: last + 1]}
    with tempfile.TemporaryDirectory() as folder:
        write_sheet(Path(folder) / "sheet.md", replace(sheet, answers=done))
        return output(["mark", "sheet.md", "--no-record"], Path(folder), code=1)


def readme() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    parts = {"tree": "\n".join(tree()), "mark example": f"$ pellucid mark sheet.md\n{marked_sheet()}"}
    if any(entry.name == "smollm2" for entry in library.list_models()):  # else the last run's numbers stay
        parts["real example"] = f"{shell(REAL)}\n{output(REAL)}"
    for name, body in parts.items():
        pattern = rf"(<!-- {name} -->\n```text\n).*?(```\n<!-- /{name} -->)"
        text, found = re.subn(pattern, lambda m, body=body: m[1] + body + "\n" + m[2], text, flags=re.DOTALL)
        assert found == 1, f"README.md has no place for its {name}"
    return text


def commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "## Exit codes\n\n| code | meaning |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield "\nA run that a signal ended has saved a checkpoint; `train --resume RUN` goes on from there.\n"
    for name, command in leaf_commands(command_tree()):
        arguments = " ".join(
            p.human_readable_name if p.required else f"[{p.human_readable_name}]"
            for p in command.params
            if p.param_type_name == "argument"
        )
        yield f"## pellucid {name} {arguments}\n"
        yield inspect.cleandoc(command.help or "") + "\n"
        yield "\n".join(("```sh", *EXAMPLES[name], "```\n"))
        yield "| option | default | meaning |\n|---|---|---|"
        for parameter in command.params:
            default = (
                "" if parameter.default in (None, False) or parameter.required else f"`{parameter.default}`"
            )
            names = ", ".join(f"`{option}`" for option in parameter.opts)
            if parameter.param_type_name == "argument":
                names = f"`{parameter.human_readable_name}`"
            cells = (names, default, parameter.help or "")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


def glossary() -> Iterator[str]:
    yield "# Glossary\n"
    yield (inspect.cleandoc(glossary_names.__doc__ or "").replace("\n    ", "\n\n    ", 1) + "\n")
    yield "## Axes\n\n| letter | means |\n|---|---|"
    yield from (f"| {letter} | {meaning} |" for letter, meaning in LETTERS.items())
    parameters = [row for row in PARAMETERS_AND_VALUES if row.is_parameter]
    yield "\n## Parameters\n\n| name | axes | symbol | meaning |\n|---|---|---|---|"
    for row in parameters:
        yield f"| `{row.name}` | {' '.join(row.axes)} | {_symbol(row)} | {_meaning(row)} |"
    yield "\n## Values\n\nFormulas as runs of a small Llama, a small GPT-2 and a cached call have them."
    yield "\n| name | axes | symbol | formula | meaning |\n|---|---|---|---|---|"
    told = formulas()
    for row in PARAMETERS_AND_VALUES:
        if row not in parameters:
            text = told.get(row.name, "").replace("|", "\\|")
            yield f"| `{row.name}` | {' '.join(row.axes)} | {_symbol(row)} | {text} | {_meaning(row)} |"
    yield "\n## Gradients\n\n`dX` is the gradient of X, `dX|Y` its part through Y, `dXᶜ` the clipped one.\n"
    yield "| name | formula |\n|---|---|"
    for name in GRADIENTS:
        yield f"| `{name}` | {told[name].replace('|', chr(92) + '|')} |"
    yield "\n## Operations\n\n| operation | what it computes | where |\n|---|---|---|"
    for op in sorted(table().values(), key=lambda op: op.name):
        yield f"| `{op.name}` | {_formula(op)} | [{_file(op).name}](../{_file(op)}) |"


GRADIENTS = [
    f"d.{name}"
    for name in (
        "logits", "unembed.weight", "final_norm.normed", "blocks.L.mlp.hidden", "blocks.L.mlp.gate",
        "blocks.L.mlp_norm.rstd", "blocks.L.attn.z", "blocks.L.attn.pattern", "blocks.L.attn.masked",
        "blocks.L.attn.scores", "blocks.L.attn.q_rot", "blocks.L.attn.k_rot", "blocks.L.attn.v",
        "blocks.L.attn.q_proj.weight", "embed.weight",
    )
]  # fmt: skip


def formulas() -> dict[str, str]:
    """Every value's formula, as `explain` prints it for some cell of a run."""
    sizes = {"vocab_size": 5, "context_length": 4, "n_layer": 2, "n_head": 4, "d_model": 8, "d_head": 4}
    gpt2 = {
        "positions": "learned",
        "norm": "layer_norm",
        "mlp": "gelu_tanh",
        "biases": ["qkv", "output", "mlp", "norm"],
    }
    llama = {"n_kv_head": 2, "unembedding": "linear"}
    found: dict[str, str] = {}
    for choices in (llama, gpt2):
        config = ModelConfig.from_dict(sizes | choices)
        draw = np.random.default_rng(0)
        weights = {name: draw.normal(size=shape) for name, shape in config.parameters().items()}
        tape = forward(config, weights, [[1, 2, 3], [3, 1, 0]], [[2, 3, 1], [1, 0, 2]])
        tape.backward(tape.ref("loss"))
        update(tape, "adamw", lr=0.1, clip=1.0)
        past = cache(forward(config, weights, [[1, 2]]), config)
        for trace in (Trace(tape), Trace(forward(config, weights, [[3]], past=past))):
            for name, step in trace.tape.steps.items():
                last = tuple(size - 1 for size in trace.value(name).shape)
                found.setdefault(re.sub(r"blocks\.\d+", "blocks.L", name), build_formula(trace, step, last))
    return found


def _symbol(row: Name) -> str:
    return row.symbol.replace("|", "\\|") + (" (transposed)" if row.transposed else "")


def _meaning(row: Name) -> str:
    return row.meaning + (f"; {row.invariant}" if row.invariant else "")


def _formula(op: Op) -> str:
    return " ".join(inspect.cleandoc(op.doc).split()).replace("|", "\\|")


def _file(op: Op) -> Path:
    return Path(inspect.getsourcefile(op.forward) or "").relative_to(ROOT)


def scaling() -> str:
    """The page about several GPUs, its table made anew."""
    text = (ROOT / "docs" / "scaling.md").read_text("utf-8")
    pattern = r"(<!-- table -->\n).*?(<!-- /table -->)"
    text, found = re.subn(pattern, lambda m: m[1] + "\n".join(shares()) + "\n" + m[2], text, flags=re.DOTALL)
    assert found == 1, "docs/scaling.md has no place for its table"
    return text


def pages() -> dict[Path, str]:
    return {
        ROOT / "README.md": readme(),
        ROOT / "docs" / "commands.md": MADE + "\n".join(commands()),
        ROOT / "docs" / "messages.md": MADE + "\n".join(messages_page(ROOT / "pellucid")),
        ROOT / "docs" / "scaling.md": scaling(),
        ROOT / "docs" / "generation.md": generation_page(
            (ROOT / "docs" / "generation.md").read_text("utf-8")
        ),
        ROOT / "docs" / "explorer.md": explorer_page((ROOT / "docs" / "explorer.md").read_text("utf-8")),
        ROOT / "docs" / "server.md": server_page((ROOT / "docs" / "server.md").read_text("utf-8")),
        ROOT / "docs" / "looking-inside.md": looks_page(
            (ROOT / "docs" / "looking-inside.md").read_text("utf-8")
        ),
        ROOT / "docs" / "calibration.md": run_examples((ROOT / "docs" / "calibration.md").read_text("utf-8")),
        ROOT / "docs" / "quantization.md": run_examples(
            (ROOT / "docs" / "quantization.md").read_text("utf-8")
        ),
        ROOT / "docs" / "python.md": python_page((ROOT / "docs" / "python.md").read_text("utf-8")),
        ROOT / "docs" / "recipes.md": recipes_page((ROOT / "docs" / "recipes.md").read_text("utf-8")),
        ROOT / "docs" / "glossary.md": MADE + "\n".join(glossary()) + "\n",
        ROOT / "docs" / "code.md": MADE + code_page(layers()),
        **choices_files(ROOT / "docs", MADE),
        **lesson_files(ROOT / "docs" / "lessons", MADE),
    }


def main() -> None:
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the code generates; run `make docs`.")
        sys.exit(bool(stale))
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made[path], "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
