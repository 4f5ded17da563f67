"""`pellucid generate`: continue a text."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from pellucid.cli.options import Device, Dtype, Json, ModelName, ParseSpecial
from pellucid.cli.terminal import exact_output, standard_input

MOST_INPUT = 1 << 24
"""Bytes of standard input that are read: more than any context holds."""


def generate(
    model: ModelName,
    prompt: Annotated[str, typer.Argument(help="The text to continue, or - for standard input.")],
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to generate, at most.", min=0, max=10**9)] = 128,
    temperature: Annotated[
        float,
        typer.Option(
            help="0: always the most probable token (greedy); 1: the model's own probabilities.",
            min=0.0,
            max=1e6,
        ),
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same text.", min=0, max=2**63 - 1)
    ] = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="Send the prompt as a user message in the model's chat template; print the answer."
        ),
    ] = False,
    system: Annotated[
        str | None, typer.Option(help="With --chat: a system message before the prompt.", metavar="TEXT")
    ] = None,
    past_context: Annotated[
        bool,
        typer.Option("--past-context", help="When the context is full, continue with its last half."),
    ] = False,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    cache: Annotated[
        str | None, typer.Option(help="The number type of the KV cache: float32, bfloat16 or int8.")
    ] = None,
    parse_special: ParseSpecial = False,
    json: Json = False,
) -> None:
    """Continue a text; each token is printed as it is generated.

    A pipe or a file gets the text exactly as the model writes it;
    a terminal gets visible escapes in place of control characters.

    A model without a tokenizer continues ids: '[1, 2, 3]'.
    """
    import itertools
    import time

    from pellucid.errors import UsageError
    from pellucid.generation.loop import finish_reason
    from pellucid.workbench import load
    from pellucid.workbench.prompts import parse_prompt

    if chat and parse_special:
        raise UsageError("--chat parses the template's special tokens and no others: omit --parse-special.")
    if system is not None and not chat:
        raise UsageError("--system is a message of a conversation: give --chat as well.")
    text = standard_input(MOST_INPUT) if prompt == "-" else prompt
    found = load(model, device=device, dtype=dtype)
    reads = text if chat else parse_prompt(found, text)
    stop = found.stop
    if chat:
        messages = [("user", text)] if system is None else [("system", system), ("user", text)]
        start, stop = found.chat_prompt([{"role": role, "content": words} for role, words in messages])
    else:
        start = found.encode(reads, parse_special)
    asked = max_new_tokens, temperature, seed
    tokens = found.generate_ids(start, *asked, cache=cache, past_context=past_context, stop=stop)
    first = list(itertools.islice(tokens, 1))  # what cannot be is refused before anything is written
    ids, pieces, times, out = list[int](), list[str](), list[float](), exact_output()

    def record_ids() -> Iterator[int]:
        for id in itertools.chain(first, tokens):
            ids.append(id)
            times.append(time.perf_counter())
            yield id

    if not json and not chat:
        print(text, end="", file=out, flush=True)
    try:
        for piece in (
            found.decode_stream(start, record_ids(), stop)
            if isinstance(reads, str)
            else _numbers(record_ids())
        ):
            pieces.append(piece)
            if not json:
                print(piece, end="", file=out, flush=True)
    finally:  # what is written stays, also after Ctrl-C
        if not json:
            print(file=out)
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None
    end = finish_reason(ids, max_new_tokens, stop)
    if json:
        from json import dumps

        data = {"prompt": text, "text": "".join(pieces), "ids": ids, "finish": end, "tokens_per_second": rate}
        print(dumps(data, ensure_ascii=False))
        return
    if rate and sys.stderr.isatty():
        print(f"{len(ids)} tokens, {rate:.1f} a second", file=sys.stderr)
    if end == "context":
        full = f"stopped at the context length of {found.config.context_length} tokens"
        print(f"{full}; --past-context slides the window", file=sys.stderr)


def _numbers(ids: Iterable[int]) -> Iterator[str]:
    return (f" {id}" for id in ids)
