"""A lesson's program: the runs behind the numbers of its page. It stands beside the page, and runs alone.

    def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
        model = pellucid.load("abcd")
        return {"one update": model.trace(prompt, target="C", update="sgd", only="unembed.weight")}

    def pictures() -> dict[str, Figure]: …            {{picture NAME}}
    def numbers() -> dict[str, float]: …              {{number NAME}}, what no tape has: a count of updates

    if __name__ == "__main__":
        print_example(run)

The first run is the one that a reference without a run's name means. `seed` 0 is the page's own example;
`python -m pellucid.learning.lessons.c_examples.l15_backward` prints it, and a sheet with another seed asks
another one (`vary_tokens`). `pictures` and `numbers` may be missing. Nothing runs when the file is imported.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pellucid.base.formatting import format_number
from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.address import Address
from pellucid.explanation.formula import build_formula
from pellucid.explanation.table import Slice
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.sheet import Sheet
from pellucid.report.figure import Figure

STRIDE = 27
"""Steps between the examples of two seeds, an odd number, so that every example comes."""
LARGE = 64
"""Numbers of a value that a printed example shows whole, at most."""


class LessonProgram:
    """The runs, pictures and further numbers of one lesson, each computed when it is first asked for."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    @cached_property
    def traces(self) -> Mapping[str, Trace]:
        """The runs by name, the page's own example."""
        return self.run(0)

    def run(self, seed: int) -> Mapping[str, Trace]:
        """Returns the runs of another example."""
        traces: Mapping[str, Trace] = self.module.run(seed=seed)
        return traces

    @cached_property
    def pictures(self) -> Mapping[str, Figure]:
        return self._call("pictures")

    @cached_property
    def numbers(self) -> Mapping[str, float]:
        return self._call("numbers")

    @cached_property
    def transfer(self) -> Sheet | None:
        """The shipped sheet from a pretrained model; None where there is none."""
        path = Path(self.module.__file__ or "").with_suffix(".transfer.json")
        if not path.exists():
            return None
        from pellucid.learning.sheets.file import read_sheet

        return read_sheet(path)

    def _call(self, function: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = getattr(self.module, function, dict)()
        return found


def vary_tokens(words: str, seed: int, vocabulary: str = "A B C D") -> str:
    """Returns other tokens of the vocabulary, as many: seed 0 gives the words themselves, and every other
    combination has its seed.

    >>> vary_tokens("A B C", 0), vary_tokens("A B C", 1), vary_tokens("A B C", 2)
    ('A B C', 'C A B', 'D D A')
    """
    tokens, given = vocabulary.split(), words.split()
    number, digits = 0, list[str]()
    for word in given:
        number = number * len(tokens) + tokens.index(word)
    number += seed * STRIDE
    for _ in given:
        number, digit = divmod(number, len(tokens))
        digits.append(tokens[digit])
    return " ".join(reversed(digits))


def print_example(run: Callable[..., Mapping[str, Trace]]) -> None:
    """Prints the runs of a lesson: each step with its formula and its numbers, then the loss of each
    update."""
    for name, trace in run().items():
        for line in format_example(name, trace):
            print(line)


def format_example(name: str, trace: Trace) -> Iterator[str]:
    """Yields one run as text: the steps of its first pass, and the loss after each update."""
    yield f"=== {name}"
    for key, step in trace.tape.steps.items():
        value = trace.value(key)
        if "@" in key.partition("[")[0] or value.size > LARGE:
            continue
        yield ""
        yield str(build_formula(trace, step, tuple(size - 1 for size in value.shape)))
        if value.ndim:
            yield str(Slice(trace, Address(key, (None,) * value.ndim), lines=None))
        else:
            yield f"{key} = {format_number(float(value), 5)}"
    values = trace.tape.values
    losses = [key for key in values if key.startswith("loss@") and not values[key].ndim]
    if losses:
        yield ""
        yield from (f"{key} = {format_number(float(trace.value(key)), 5)}" for key in ("loss", *losses))


def record_right(trace: Trace) -> Trace:
    """Adds right@k, the number of targets that are the likeliest token after k updates, and `updates`, the
    least k with all of them right (−1 where there is none), and returns the trace."""
    tape, targets = trace.tape, trace.value("targets")
    counted = targets != IGNORE_INDEX
    total, first = int(counted.sum()), -1
    for k in count():
        if f"probs@{k}" not in tape:
            break
        predicted = tape[f"probs@{k}"].argmax(axis=-1)
        right = int(np.sum(predicted[counted] == targets[counted]))
        tape.describe(
            tape.constant(f"right@{k}", right),
            meaning=f"number of targets that are the likeliest token after {k} updates",
        )
        if right == total and first < 0:
            first = k
    tape.describe(
        tape.constant("updates", first), meaning="number of updates after which every target is the likeliest"
    )
    return trace
