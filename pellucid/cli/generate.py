"""`pellucid generate`: what follows a text."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import prompt_of

if TYPE_CHECKING:
    pass


def generate(
    model: Annotated[str, typer.Argument(help="A folder, a .gguf or .toml file, or a model's name.")],
    prompt: Annotated[str, typer.Argument(help="The text to go on with, or - for standard input.")],
    max_new_tokens: Annotated[int, typer.Option(help="How many tokens at most.", min=0)] = 128,
    temperature: Annotated[
        float, typer.Option(help="0: always the likeliest token; 1: as probable as the model says.", min=0.0)
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    cache: Annotated[
        str | None, typer.Option(help="How keys and values are kept: float32, bfloat16, int8.")
    ] = None,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read special tokens in the prompt, such as <|im_start|>.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Text, tokens and speed as one JSON line.")] = False,
) -> None:
    """Go on with a text, token by token as they come.

    A model without a tokenizer goes on with ids: '[1, 2, 3]'.
    """
    import itertools
    import time

    from pellucid.workbench import load

    text = _standard_input() if prompt == "-" else prompt
    found = load(model, device=device, dtype=dtype)
    reads = prompt_of(found, text)
    given = None if isinstance(reads, str) else reads
    ids, pieces, times = list[int](), list[str](), list[float]()
    start = found.ids(text if given is None else given, parse_special)
    tokens = found.tokens(start, max_new_tokens, temperature, seed, cache=cache)
    first = list(itertools.islice(tokens, 1))  # what is asked wrongly is told before anything is written

    def seen() -> Iterator[int]:
        for id in itertools.chain(first, tokens):
            ids.append(id)
            times.append(time.perf_counter())
            yield id

    if not json:
        print(text, end="", flush=True)
    try:
        for piece in _numbers(seen()) if given is not None else found.decoded(start, seen()):
            pieces.append(piece)
            if not json:
                print(piece, end="", flush=True)
    finally:  # what is written stays, also after Ctrl-C
        if not json:
            print()
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None
    if json:
        from json import dumps

        end = "stop" if ids and ids[-1] in found.stop else "length"
        data = {"prompt": text, "text": "".join(pieces), "ids": ids, "finish": end, "tokens_per_second": rate}
        print(dumps(data, ensure_ascii=False))
    elif rate and sys.stderr.isatty():
        print(f"{len(ids)} tokens, {rate:.1f} a second", file=sys.stderr)


def _standard_input() -> str:
    from pellucid.errors import TokenError

    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenError(
            f"standard input is not text: byte {error.start} is no UTF-8. Convert it first, for example with "
            "iconv."
        ) from None


def _numbers(ids: Iterable[int]) -> Iterator[str]:
    return (f" {id}" for id in ids)
