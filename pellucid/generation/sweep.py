"""`pellucid.generation.sweep`: the same prompt with several values of a setting, side by side.

    result = sweep(pellucid.load("smollm2"), "Once upon a time", {"temperature": [0.5, 0.8, 1.2]})
    print(result.rows[0].text, result.rows[0].mean_surprisal)

Every text has the same seed, so that what differs is the setting alone, and all run in one engine.
"""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import UsageError, show, unknown
from pellucid.data.generated.stories import LEVELS
from pellucid.data.generated.stories.parse import accepted_length
from pellucid.generation.context import check_room
from pellucid.generation.generate import complete, make_engine
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.keywords import read_options
from pellucid.generation.settings.table import SETTINGS
from pellucid.text.prompts import Prompt, encode_start

if TYPE_CHECKING:
    from pellucid.model import Model

MOST_ROWS = 64
"""Combinations of values in one sweep."""
MOST_SEEDS = 10**6
SENTENCE_END = re.compile(r'[.!?]+"?')


@dataclass(frozen=True)
class SweepRow:
    """The texts of one combination of values, with their statistics."""

    settings: Mapping[str, Any]
    completions: tuple[Completion, ...]
    stop_ids: frozenset[int]
    accepted: float | None = None
    """The share of the sentences that a story of the grammar has there; None without a grammar."""

    @property
    def text(self) -> str:
        """The first text."""
        return self.completions[0].text

    @property
    def mean_surprisal(self) -> float | None:
        """The mean of −ln p over the tokens, under the model's own probabilities, in nats."""
        values = [-value for one in self.completions for value in one.logprobs]
        return sum(values) / len(values) if values else None

    @property
    def distinct_2_grams(self) -> float | None:
        """The number of different pairs of neighboring tokens, over the number of pairs."""
        grams = [gram for ids in self._ids() for gram in n_grams(ids, 2)]
        return len(set(grams)) / len(grams) if grams else None

    @property
    def repeated_4_grams(self) -> float | None:
        """The share of the runs of four tokens that stood in the same text before."""
        counts = [Counter(n_grams(ids, 4)) for ids in self._ids()]
        total = sum(map(Counter.total, counts))
        return sum(counter.total() - len(counter) for counter in counts) / total if total else None

    def _ids(self) -> Iterator[list[int]]:
        """Yields the tokens of each text, without a stop token."""
        for one in self.completions:
            ends = one.ids and one.ids[-1] in self.stop_ids
            yield list(one.ids[:-1] if ends else one.ids)

    def to_data(self) -> dict[str, Any]:
        """Returns the row as plain data."""
        return {
            "settings": {name: SETTINGS[name].to_plain(value) for name, value in self.settings.items()},
            "texts": [one.text for one in self.completions],
            "ids": [list(one.ids) for one in self.completions],
            "finish": [one.finish for one in self.completions],
            **{name: getattr(self, name) for name in STATISTICS},
        }


STATISTICS = {
    "mean_surprisal": "mean surprisal",
    "distinct_2_grams": "distinct 2-grams",
    "repeated_4_grams": "repeated 4-grams",
    "accepted": "accepted sentences",
}
"""The figures of a row, and what a table calls them."""


@dataclass(frozen=True)
class SweepResult:
    """The rows of a sweep, in the order of the values; the last key varies fastest."""

    seed: int
    grammar: str | None
    rows: tuple[SweepRow, ...]

    def to_data(self) -> dict[str, Any]:
        """Returns the result as plain data."""
        return {"seed": self.seed, "grammar": self.grammar, "rows": [row.to_data() for row in self.rows]}


def sweep(
    model: "Model",
    prompt: Prompt,
    values: Mapping[str, Sequence[Any]],
    *,
    grammar: str | None = None,
    **options: Any,
) -> SweepResult:
    """Returns the texts of every combination of values, such as {"temperature": [0.5, 1]}, with statistics.

    `options` are those of `Model.generate`. `grammar` is a level of the stories, by which sentences are
    judged; a model with the tokenizer of a level is judged by that.
    """
    call = read_options(model, options | combine(values)[0])
    check_room(model, prompt, call.sampling)
    request = Request(tuple(encode_start(model, prompt, call.parse_special)), call.sampling)
    before = prompt if isinstance(prompt, str) else ""
    return run_sweep(model, request, values, call.engine, before=before, grammar=grammar)


def run_sweep(
    model: "Model",
    request: Request,
    values: Mapping[str, Sequence[Any]],
    engine: Mapping[str, Any],
    *,
    before: str = "",
    grammar: str | None = None,
    progress: Callable[[], None] = lambda: None,
) -> SweepResult:
    """Returns what `sweep` does, of a request whose settings are read already.

    `engine` are keywords of `Engine`, `before` is the text of the prompt; `progress` is called after each
    row.
    """
    level = find_level(model) if grammar is None else _check_level(grammar)
    base = request.sampling
    seed = random.SystemRandom().randrange(MOST_SEEDS) if base.seed is None else base.seed
    combinations = combine(values)
    requests = [
        Request(request.prompt, base.merge({"seed": seed, **settings}), logprobs=True)
        for settings in combinations
    ]
    ends = frozenset(model.eos_ids if base.stop_ids is None else base.stop_ids)
    found = complete(make_engine(model, requests, engine), requests)
    rows = []
    for settings, completions in zip(combinations, found, strict=True):
        texts = [one.text for one in completions]
        accepted = None if level is None else accepted_share(level, before, texts)
        rows.append(SweepRow(settings, tuple(completions), ends, accepted))
        progress()
    return SweepResult(seed, level, tuple(rows))


def combine(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Returns every combination of the values of each setting, each value as the setting reads it.

    >>> combine({"top_k": [1, 2], "temperature": [1]})
    [{'top_k': 1, 'temperature': 1.0}, {'top_k': 2, 'temperature': 1.0}]
    """
    if not values:
        raise UsageError("a sweep needs a setting with its values, for example temperature=0.5,0.8,1.2.")
    for name in values:
        if name not in SETTINGS:
            raise UsageError(unknown("a setting", name, SETTINGS))
        if not isinstance(values[name], list | tuple | range) or not values[name]:
            raise UsageError(f"{name} must have a list of values, not {show(values[name])}.")
    read = [[SETTINGS[name].read(one) for one in some] for name, some in values.items()]
    count = 1
    for some in read:
        count *= len(some)
    if count > MOST_ROWS:
        raise UsageError(f"a sweep has at most {MOST_ROWS} combinations, not {count:,}: give fewer values.")
    return [dict(zip(values, some, strict=True)) for some in itertools.product(*read)]


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Returns the setting and the values of KEY=VALUE,VALUE,…; a JSON list gives values that have commas.

    >>> parse_sweep("temperature=0.5,1")
    ('temperature', [0.5, 1.0])
    """
    name, equals, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not listed.strip():
        raise UsageError(f"{show(text)} is not a sweep: write KEY=VALUE,VALUE, such as temperature=0.5,1.")
    if name not in SETTINGS:
        raise UsageError(unknown("a setting", name, SETTINGS))
    if listed.lstrip().startswith("["):
        try:
            return name, [SETTINGS[name].read(value) for value in json.loads(listed)]
        except (ValueError, RecursionError):
            raise UsageError(f"{show(text)} is not a sweep: its values are not a JSON list.") from None
    return name, [SETTINGS[name].read(value.strip(), text=True) for value in listed.split(",")]


def n_grams(ids: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """Yields every run of n neighboring tokens.

    >>> list(n_grams([1, 2, 3], 2))
    [(1, 2), (2, 3)]
    """
    return (tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))


# ---- the stories


def find_level(model: "Model") -> str | None:
    """Returns the level of the stories that a model was trained on: the one whose words its tokenizer has."""
    from pellucid.data.sources.generated import spaced_words

    tokenizer = model.pretrained.tokenizer
    if tokenizer is None or tokenizer.vocab_size > 10_000:
        return None
    own = {tokenizer.token(id) for id in range(tokenizer.vocab_size)}
    for level in LEVELS:
        words = spaced_words(level)
        if words.vocab_size == len(own) and own == {words.token(id) for id in range(words.vocab_size)}:
            return level
    return None


def _check_level(level: str) -> str:
    if level not in LEVELS:
        raise UsageError(unknown("grammar", level, LEVELS))
    return level


def accepted_share(level: str, prompt: str, texts: Sequence[str]) -> float | None:
    """Returns the share of the sentences up to whose end some story of the level begins like the text.

    The prompt is a part of the text, and a sentence counts where it ends after it. After the first word that
    no story has there, no sentence is accepted. None where no text has a sentence.

    >>> accepted_share("tiny", "", ["Once there was a kind hen named Rose. She flew. Bang."])
    0.3333333333333333
    """
    accepted = total = 0
    for text in texts:
        whole = prompt + text
        length = accepted_length(level, whole)
        ends = [found.end() for found in SENTENCE_END.finditer(whole) if found.end() > len(prompt)]
        total += len(ends)
        accepted += sum(end <= length for end in ends)
    return accepted / total if total else None
