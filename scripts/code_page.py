"""docs/code.md: the files to read in an evening, the map of the rooms, and where things are."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pellucid"
EVENING = (
    (
        "What is a model before it has weights?",
        "`ModelConfig.parameters`: the name and shape of every weight follow from a few sizes and choices. "
        "`_check_combination` refuses those that do not go together.",
        "config/__init__.py",
    ),
    (
        "What is a choice?",
        "`Rope`: its settings, its angles as a function of the position, and a check of both and of the head "
        "size. Both engines rotate by the angles that they are given, and neither knows its name.",
        "parts/positions/rope.py",
    ),
    (
        "What is an operation?",
        "`Op` has a forward, the steps of its gradient, and `reads`: which cells of the inputs one cell "
        "reads. So one number can be computed again from the few that it needs.",
        "reference/op.py",
    ),
    (
        "What does one operation look like?",
        "A line of formula, a line of forward, a gradient that is an operation again: no more is needed to "
        "explain, differentiate and check it.",
        "reference/ops/softmax.py",
    ),
    (
        "How is every number kept?",
        "`Tape.__call__` runs an operation and keeps its result under a name; `backward` appends the "
        "gradient as steps of the same kind.",
        "reference/tape.py",
    ),
    (
        "What does attention compute?",
        "Thirty lines around it, from `q_proj` to `attn_out`; scores, mask and softmax are `apply` in the "
        "second file. Every name given to a tape call, or to a helper that makes one, is a name of the "
        "glossary, which `pellucid explain` takes.",
        "reference/attention.py",
        "reference/attentions/softmax.py",
    ),
    (
        "What does a transformer compute?",
        "`transformer`, then `block`. This is the definition: where anything else differs, it is wrong until "
        "an outside source says otherwise.",
        "reference/transformer.py",
    ),
    (
        "How is a training step recorded, number by number?",
        "`train` is forward, backward, update on one tape for each step; `join` makes them one, so that "
        "NAME@k is a value after k updates. The loss is the second file; in the third, `adamw` is AdamW in "
        "two lines.",
        "reference/training.py",
        "reference/loss.py",
        "reference/ops/updates.py",
    ),
    (
        "What is the same, fast?",
        "Read it beside `reference/attention.py`: the same names up to `z`. The cache, scores to pattern, "
        "and the fused kernel that runs where no recording asks for them are in "
        "`engine/attentions/softmax.py`; `attn_out` is named in `engine/block.py`.",
        "engine/attention.py",
    ),
    (
        "How does it read many tokens, and then one at a time?",
        "`forward` for training and scoring, `forward_cached` and `forward_packed` for generation: one "
        "forward pass, with a cache or without.",
        "engine/transformer.py",
    ),
    (
        "What does a user hold?",
        "`Model`: a config, weights, a tokenizer, the fast engine. `VERBS` lists what can be done with it "
        "and in which room that is; of the rest read what you need.",
        "model.py",
    ),
    (
        "What is one step of a run?",
        "`train_step`: batch, forward, loss, backward, clip, update, in the order in which one says it.",
        "training/step.py",
    ),
)
"""Twelve questions in reading order: each with what to look at, its file, and the short ones read with it."""
WAYS = (
    (
        "computed",
        "`forward` in [reference/training.py](../pellucid/reference/training.py) puts the weights and the "
        "ids on a tape; `transformer` appends a step for each line of its formula. The fast engine computes "
        "the same under the same names.",
    ),
    (
        "explained",
        "`record_arithmetic` in [explanation/derive.py](../pellucid/explanation/derive.py) asks the step's "
        "operation which cells it reads, and runs the same forward on arrays that write down what is done "
        "to them.",
    ),
    (
        "checked",
        "[verification/checks/engine/engines.py](../pellucid/verification/checks/engine/engines.py) compares "
        "every named value of both engines; [verification/rounding.py](../pellucid/verification/rounding.py) "
        "says how far rounding alone can carry a value, by running the operation's own forward on Σ|terms|.",
    ),
)
PLACES = (
    ("top-p", "parts/samplers/top_p.py"),
    ("the bound on rounding", "verification/rounding.py"),
    (
        "the decode step in Triton: its launches; its kernels",
        *("engine/gpu/step.py", "engine/gpu/products.py", "engine/gpu/attention.py"),
        *("engine/gpu/tokens.py", "engine/gpu/selection.py"),
    ),
    ("the decode step in C", "engine/cpu/step.c"),
    (
        "a key of a recipe, by its table",
        *("training/recipe/sections.py", "data/sources/settings.py", "parts/optimizers.py"),
        *("parts/schedules.py", "config/__init__.py"),
    ),
    (
        "the style of reports, ledgers and sheets; of the explorer",
        *("report/page.css", "server/explorer/page/page.css"),
    ),
    ("the blocks of GGUF, Q4_K among them", "formats/gguf/quants.py"),
    ("a family of Hugging Face", "formats/huggingface/families/"),
    (
        "a lesson; the form of its page; how to add one",
        *("learning/lessons/c_examples/l13_forward.py", "learning/lessons/page.py", "CONTRIBUTING.md"),
    ),
    ("resuming a run", "training/resume.py"),
    (
        "AdamW: its formula, its steps; fast",
        *("reference/ops/updates.py", "reference/optimizers.py", "training/optimizers.py"),
    ),
    (
        "choices: which there are, their kinds, all of them on a page",
        *("config/__init__.py", "parts/", "docs/choices.md"),
    ),
    ("the name and meaning of every value", "base/names.py"),
    ("an endpoint of the server", "server/openai/endpoints/"),
    ("a usual mistake, planted", "verification/mistakes/"),
    ("a check of `verify`", "verification/checks/"),
)


def code_page(layers: list[list[str]]) -> str:
    """Returns the page; `layers` are the rooms in the order of their imports."""
    return "\n".join(_lines(layers)) + "\n"


def _lines(layers: list[list[str]]) -> Iterator[str]:
    mains = [files[0] for _, _, *files in EVENING]
    beside = [file for _, _, *files in EVENING for file in files[1:]]
    yield "# The code in one evening\n"
    yield (
        f"Twelve files, {_total(mains):,} lines, in the order to read them, and beside them three short "
        f"ones, {_total(beside):,} lines. Each can be read without opening another room, except that the "
        "choices' classes are in [parts/](../pellucid/parts/); together they say how a number is computed. "
        "The sections after them say how it is explained and checked, where the rooms are, and where to look "
        "for something.\n"
    )
    for i, (question, look, *files) in enumerate(EVENING, start=1):
        first, *others = (f"**{_link(file)}**, {_count(file)} lines" for file in files)
        beside_it = f"; beside it {' and '.join(others)}" if others else ""
        yield f"{i}. {first}{beside_it}. *{question}* {look}"
    yield "\n## One number, three ways\n"
    for way, text in WAYS:
        yield f"- **{way}**: {text}"
    yield "\n## The rooms\n"
    yield (
        "A room is a folder of `pellucid/`, or a file beside them. It imports only rooms before it in the "
        "list. Six layers, a line between them.\n"
    )
    yield "| room | what is there |\n|---|---|"
    for i, rooms in enumerate(layers):
        if i:
            yield "| | |"
        for room in rooms:
            name = f"{room}/" if (PACKAGE / room).is_dir() else f"{room}.py"
            yield f"| {_link(name)} | {_purpose(room)} |"
    yield "\n## Where is …?\n"
    yield "| what | where |\n|---|---|"
    for what, *files in PLACES:
        yield f"| {what} | {', '.join(map(_link, files))} |"


def _link(file: str) -> str:
    """Returns a link to a file of the package, or else of the repository."""
    folder = "pellucid/" if (PACKAGE / file).exists() else ""
    return f"[{file}](../{folder}{file})"


def _total(files: Iterable[str]) -> int:
    return sum(map(_count, files))


def _count(file: str) -> int:
    return (PACKAGE / file).read_bytes().count(b"\n")


def _purpose(room: str) -> str:
    folder = PACKAGE / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
