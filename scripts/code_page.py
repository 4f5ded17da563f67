"""docs/code.md: the files to read in an evening, the map of the rooms, and where things are."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pellucid"
EVENING = (
    (
        "config/__init__.py",
        "What is a model before it has weights?",
        "`ModelConfig.parameters`: the name and shape of every weight follow from a few sizes and choices. "
        "`_check_combination` refuses those that do not go together.",
    ),
    (
        "parts/positions/rope.py",
        "What is a choice?",
        "`Rope`: its settings, its angles as a function of the position, what it does not go with. Both "
        "engines "
        "rotate by the angles that they are given, and neither knows its name.",
    ),
    (
        "reference/op.py",
        "What is an operation?",
        "`Op` has a forward, the steps of its gradient, and `reads`: which cells of the inputs one cell "
        "reads. "
        "So one number can be computed again from the few that it needs.",
    ),
    (
        "reference/ops/softmax.py",
        "What does one operation look like?",
        "A line of formula, a line of forward, a gradient that is an operation again: no more is needed to "
        "explain, differentiate and check it.",
    ),
    (
        "reference/tape.py",
        "How is every number kept?",
        "`Tape.__call__` runs an operation and keeps its result under a name; `backward` appends the "
        "gradient "
        "as steps of the same kind.",
    ),
    (
        "reference/attention.py",
        "What does attention compute?",
        "Thirty lines from `q_proj` to `attn_out`. Each first argument is a name of the glossary, which "
        "`pellucid explain` takes.",
    ),
    (
        "reference/transformer.py",
        "What does a transformer compute?",
        "`transformer`, then `block`. This is the definition: where anything else differs, it is wrong until "
        "an outside source says otherwise.",
    ),
    (
        "reference/training.py",
        "How does an update become numbers with names?",
        "`train` is forward, backward, update on one tape for each step; `join` makes them one, so that "
        "NAME@k is a value after k updates.",
    ),
    (
        "engine/attention.py",
        "What is the same, fast?",
        "Read it beside `reference/attention.py`: the same names in the same order. A fused kernel runs "
        "where no recording asks for the values between.",
    ),
    (
        "engine/transformer.py",
        "How does it read many tokens, and then one at a time?",
        "`forward` for training and scoring, `forward_cached` and `forward_packed` for generation: one "
        "forward "
        "pass, with a cache or without.",
    ),
    (
        "model.py",
        "What does a user hold?",
        "`Model`: a config, weights, a tokenizer, the fast engine. `VERBS` lists what can be done with it "
        "and "
        "in which room that is.",
    ),
    (
        "training/step.py",
        "What is one step of a run?",
        "`train_step`: batch, forward, loss, backward, clip, update, in the order in which one says it.",
    ),
)
"""Files in reading order, each with the question that it answers and what to look at."""
WAYS = (
    (
        "computed",
        "`forward` in [reference/training.py](../pellucid/reference/training.py) puts the weights and the "
        "ids on a tape; "
        "`transformer` appends a step for each line of its formula. The fast engine computes the same "
        "under the "
        "same names.",
    ),
    (
        "explained",
        "`record_arithmetic` in [explanation/derive.py](../pellucid/explanation/derive.py) asks the "
        "step's operation "
        "which cells it reads, and runs the same forward on arrays that write down what is done to them.",
    ),
    (
        "checked",
        "[verification/checks/engine/engines.py](../pellucid/verification/checks/engine/engines.py) "
        "compares every named "
        "value of both engines; [verification/rounding.py](../pellucid/verification/rounding.py) says how "
        "far rounding "
        "alone can carry a value, by running the operation's own forward on Σ|terms|.",
    ),
)
PLACES = (
    ("top-p", "parts/samplers/top_p.py"),
    ("the bound on rounding", "verification/rounding.py"),
    ("the decode step in Triton", "engine/gpu/step.py"),
    ("the decode step in C", "engine/cpu/step.c"),
    ("a key of a recipe", "training/recipe/sections.py"),
    ("the style of every page; of the explorer's", "report/page.css", "server/explorer/page/page.css"),
    ("the blocks of GGUF, Q4_K among them", "formats/gguf/quants.py"),
    ("a family of Hugging Face", "formats/huggingface/families/"),
    ("a lesson", "learning/lessons/c_examples/l13_forward.py"),
    ("resuming a run", "training/resume.py"),
    ("AdamW, step by step; fast", "reference/optimizers.py", "training/optimizers.py"),
    ("the list of choices", "parts/"),
    ("the name and meaning of every value", "base/names.py"),
    ("an endpoint of the server", "server/openai/endpoints/"),
    ("a usual mistake, planted", "verification/mistakes/"),
    ("a check of `verify`", "verification/checks/"),
)


def code_page(layers: list[list[str]]) -> str:
    """Returns the page; `layers` are the rooms in the order of their imports."""
    return "\n".join(_lines(layers)) + "\n"


def _lines(layers: list[list[str]]) -> Iterator[str]:
    total = sum(map(_count, (file for file, _, _ in EVENING)))
    yield "# The code in one evening\n"
    yield (
        f"Twelve files, {total:,} lines, in the order to read them. Each can be read without opening "
        f"another room; "
        "together they say how a number is computed. What stands below them says how it is explained and "
        "checked, where the rooms are, and where to look for something.\n"
    )
    for i, (file, question, look) in enumerate(EVENING, start=1):
        yield f"{i}. **[{file}](../pellucid/{file})**, {_count(file)} lines. *{question}* {look}"
    yield "\n## One number, three ways\n"
    for way, text in WAYS:
        yield f"- **{way}**: {text}"
    yield "\n## The rooms\n"
    yield "A room imports only what stands above it. Six layers, a line between them.\n"
    yield "| room | what is there |\n|---|---|"
    for i, rooms in enumerate(layers):
        if i:
            yield "| | |"
        for room in rooms:
            name = f"{room}/" if (PACKAGE / room).is_dir() else f"{room}.py"
            yield f"| [{name}](../pellucid/{name}) | {_purpose(room)} |"
    yield "\n## Where is …?\n"
    yield "| what | where |\n|---|---|"
    for what, *files in PLACES:
        yield f"| {what} | {', '.join(f'[{file}](../pellucid/{file})' for file in files)} |"


def _count(file: str) -> int:
    return (PACKAGE / file).read_bytes().count(b"\n")


def _purpose(room: str) -> str:
    folder = PACKAGE / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
