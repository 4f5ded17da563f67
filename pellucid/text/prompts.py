"""Prompts: a text, a list of ids, several of either, an array; and the batch that they make."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_bool, count_ids, is_bool
from pellucid.base.errors import TokenError, UsageError, show
from pellucid.base.formatting import pluralize
from pellucid.base.names import IGNORE_INDEX

if TYPE_CHECKING:
    from pellucid.model import Model

Prompt = str | Sequence[int]

MOST_IDS = 2**24
"""Ids that a prompt may have at most, also where it need not fit a context."""
NOT_IDS = "ids must be whole numbers, in a list or in several, at least one in each."


@dataclass(frozen=True)
class PromptBatch:
    """Prompts with their targets, as the engines read them."""

    prompts: list[Prompt]
    rows: list[list[int]]
    """The ids of each prompt, with all tokens of its target but the last."""
    ids: list[list[int]]
    """The rows padded on the right to one length, [B T]."""
    targets: list[list[int]] | None
    """The id after each, IGNORE_INDEX where it does not count, [B T]; None without targets."""
    padding: list[list[int]] | None
    """1 for a token and 0 for padding, [B T]; None where all rows have one length."""


def make_batch(model: "Model", prompt: Any, target: Any) -> PromptBatch:
    """Returns the batch of one prompt or several, with a target for each or for none."""
    for given in (prompt, target):
        check_length(given, model.config.context_length)
    prompts, single = split_prompts(prompt)
    goals: Sequence[Any] = [None] * len(prompts)
    if target is not None:
        if single and isinstance(target, list | tuple) and any(isinstance(goal, str) for goal in target):
            raise UsageError(f"one prompt has one target, not a list of them; got {show(target)}.")
        goals = [target] if single else _split_targets(target, len(prompts))
    pairs = [_make_row(model, start, goal) for start, goal in zip(prompts, goals, strict=True)]
    rows, targets = [ids for ids, _ in pairs], [wanted for _, wanted in pairs]
    longest = max(map(len, rows))
    return PromptBatch(
        prompts,
        rows,
        [row + [0] * (longest - len(row)) for row in rows],
        [row + [IGNORE_INDEX] * (longest - len(row)) for row in targets] if target is not None else None,
        None
        if min(map(len, rows)) == longest
        else [[1] * len(row) + [0] * (longest - len(row)) for row in rows],
    )


def _split_targets(target: Any, count: int) -> list[Any]:
    goals, single = split_prompts(target, "target")
    if single or len(goals) != count:
        raise UsageError(
            f"each prompt needs one target: {pluralize(count, 'prompt')}, but the target is {show(target)}."
        )
    return goals


def _make_row(model: "Model", prompt: Any, target: Any) -> tuple[list[int], list[int]]:
    """Returns the ids of a prompt and its target, and the id that should follow each."""
    start = model.encode(parse_prompt(model, prompt))
    goal: list[int] = []
    if target is not None:
        target = parse_prompt(model, target)
        goal = model.tokenizer.encode(target) if isinstance(target, str) else check_ids(target, "target")
        if not goal:
            raise TokenError("the target is empty; give at least one token, or none at all.")
        check_vocabulary(goal, model.config.vocab_size, "target")
    ids = (start + goal)[: -1 if goal else None]
    check_length(ids, model.config.context_length)
    return ids, [IGNORE_INDEX] * (len(start) - 1) + goal


def parse_prompt(model: "Model", prompt: Any) -> Any:
    """Returns the ids that a text such as "[1, 2, 3]" lists where the model has no tokenizer, else the
    prompt."""
    if not isinstance(prompt, str) or model.pretrained.tokenizer is not None:
        return prompt
    listed = re.fullmatch(r"\s*\[([\d,\s]*)\]\s*", prompt)
    if listed is None:
        return prompt
    ids = [id.lstrip("0") or "0" for id in re.findall(r"\d+", listed[1])]
    if too_long := [id for id in ids if len(id) > 18]:
        raise TokenError(f"an id is beyond every vocabulary: it has {len(too_long[0])} digits.")
    return [int(id) for id in ids]


def encode_start(model: "Model", prompt: Prompt, parse_special: bool = False) -> list[int]:
    """Returns the ids of a prompt to continue; an empty text is the token that a text begins with."""
    check_bool("parse_special", parse_special)
    if not isinstance(prompt, str):
        return model.encode(prompt)
    return model.pretrained.encode_start(prompt, parse_special)


def check_length(given: Any, context: int) -> None:
    """Raises where more ids are given than the context has positions, before they are listed: a range or an
    array may have more of them than the memory."""
    if (count := count_ids(given)) > context:
        raise TokenError(
            f"{count:,} tokens do not fit this model's context of {context:,}; shorten the prompt."
        )


def split_prompts(given: Any, parameter: str = "prompt") -> tuple[list[Any], bool]:
    """Returns the prompts that are given, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    rows = [_to_list(row) for row in check_prompt(given, parameter)]
    single = not any(isinstance(row, Sequence) for row in rows)
    if not single and not all(isinstance(row, Sequence) for row in rows):
        raise TokenError(NOT_IDS)
    return [rows] if single else rows, single


def check_prompt(given: Any, parameter: str = "prompt") -> Any:
    """Returns a text or a list of whatever it lists; bytes, sets and numbers are neither."""
    if (count := count_ids(given)) > MOST_IDS:
        raise TokenError(f"{parameter} must have at most {MOST_IDS:,} token ids, not {count:,}.")
    given = _to_list(given)
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray | memoryview):
        return given
    raise UsageError(f"{parameter} must be a text or token ids such as [1, 2, 3], not {show(given)}.")


def check_ids(ids: Any, parameter: str = "ids") -> list[int]:
    """Returns the ids as integers; nothing is rounded."""
    listed = check_prompt(ids, parameter)
    if isinstance(listed, str):
        raise TokenError(
            f"{parameter} must be token ids such as [1, 2, 3], not a text; `encode(text)` gives them."
        )
    try:
        found = [operator.index(id) for id in listed]
    except TypeError:
        raise TokenError(NOT_IDS) from None
    if any(is_bool(id) for id in listed):
        raise TokenError(NOT_IDS)
    if any(not -(2**63) <= id < 2**63 for id in found):  # no tensor holds them
        raise TokenError("an id is beyond every vocabulary; ids count a model's tokens from 0.")
    return found


def check_vocabulary(ids: Sequence[int], vocab_size: int, parameter: str = "ids") -> None:
    """Raises unless every id is one of the model's tokens."""
    if wrong := [id for id in (min(ids), max(ids)) if not 0 <= id < vocab_size]:
        raise TokenError(f"{parameter}: ids go from 0 to {vocab_size - 1:,}; got {wrong[0]:,}.")


def _to_list(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given
