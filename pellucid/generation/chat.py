"""`Model.chat`: the answer to a conversation that the model's own chat template writes."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from pellucid.base.errors import UsageError
from pellucid.generation.generate import complete_prompts
from pellucid.generation.settings.keywords import GenerationOptions, read_options
from pellucid.model import Model, to_model

if TYPE_CHECKING:
    from pellucid.text.chat_template import Chat

Messages = str | Sequence[Mapping[str, str]]
"""[{"role": "user", "content": "Who are you?"}, …], or one user's text."""


@overload
def chat(
    model: "Model | str | os.PathLike[str]",
    /,
    messages: Messages,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    *,
    n: Literal[1] | None = None,
    return_ledger: Literal[False] = False,
    **options: Unpack[GenerationOptions],
) -> str: ...


@overload
def chat(
    model: "Model | str | os.PathLike[str]",
    /,
    messages: Messages,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    *,
    n: int | None = None,
    return_ledger: bool = False,
    **options: Unpack[GenerationOptions],
) -> Any: ...


def chat(
    model: "Model | str | os.PathLike[str]",
    /,
    messages: Messages,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    *,
    n: int | None = None,
    return_ledger: bool = False,
    **options: Unpack[GenerationOptions],
) -> Any:
    """Returns the model's answer to a conversation, written by its own chat template.

    `messages` are [{"role": "user", "content": "Who are you?"}, …], or one user's text. Special tokens in
    them are ordinary text; those of the template are parsed. `n` and `return_ledger` are as for `generate`.

    >>> import pellucid
    >>> try:
    ...     pellucid.chat("abcd", "A B")
    ... except pellucid.UsageError as error:
    ...     print(str(error).partition(",")[0])
    abcd has no chat template
    """
    model = to_model(model)
    ids, ends = chat_prompt(model, messages)
    given = {"max_new_tokens": max_new_tokens, "temperature": temperature, "n": n, **options}
    call = read_options(model, {"stop_ids": ends} | given)
    return complete_prompts(model, [ids], call, [True], seed, return_ledger, single=True)


def chat_prompt(model: "Model", /, messages: Messages) -> tuple[list[int], list[int]]:
    """Returns the ids that ask for the next answer of a conversation, and the tokens that end it."""
    from pellucid.text.chat_template import check_messages

    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    checked = check_messages(given)
    with open_chat(model) as template:
        return ask(model, template, checked)


def open_chat(model: "Model") -> "Chat":
    """Returns the model's chat template, in a process that ends with the `with` block."""
    from pellucid.text.chat_template import Chat

    if model.pretrained.chat_template is None:
        raise UsageError(
            f"{model.name} has no chat template, so a conversation cannot be written for it. Use a model "
            "that was trained on conversations, or give plain text to continue."
        )
    return Chat(model.pretrained.chat_template, model.tokenizer)


def ask(
    model: "Model", template: "Chat", messages: Sequence[Mapping[str, str]]
) -> tuple[list[int], list[int]]:
    """Returns what `chat_prompt` does, by a template that is open."""
    from pellucid.text.chat_template import check_messages

    ids, end = template.prompt(check_messages(messages)), template.end_of_turn()
    return ids, sorted({*model.eos_ids, *([] if end is None else [end])})
