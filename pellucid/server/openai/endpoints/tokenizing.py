"""`/tokenize`, `/detokenize` and `/tokenizer_info`, in the form that vLLM gave them and lm-eval asks for."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.formats.pretrained import Pretrained
from pellucid.server.http.app import make_answer
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.served_model import ServedModel
from pellucid.text.tokenizer import Tokenizer

CHUNK = 8_192
"""Entries of a list that are written as JSON at a time: others have their turn between."""


async def tokenize(served: ServedModel, request: Request) -> Response:
    """Answers with the ids of a text or of a conversation."""
    values = await served.read_values(request, "tokenize")
    ids = await encode_values(served, values)
    tokens = await write_list(ids, lambda id: id)
    strings = b""
    if values["return_token_strs"]:
        strings = b',"token_strs":' + await write_list(ids, served.encoder.need_tokenizer().token)
    head = {"count": len(ids), "max_model_len": served.pretrained.config.context_length}
    return make_answer(json.dumps(head).encode()[:-1] + b',"tokens":' + tokens + strings + b"}")


async def detokenize(served: ServedModel, request: Request) -> Response:
    """Answers with the text of ids."""
    values = await served.read_values(request, "detokenize")
    return make_answer(json.dumps({"prompt": await served.encoder.decode(values["tokens"])}).encode())


async def show_tokenizer(served: ServedModel, request: Request) -> Response:
    """Answers with the tokenizer's special tokens and the chat template."""
    info = describe_tokenizer(served.pretrained, served.encoder.need_tokenizer())
    return make_answer(json.dumps(info).encode())


async def encode_values(served: ServedModel, values: dict[str, Any]) -> Sequence[int]:
    if values["messages"] is not None:
        return await served.encoder.tokenize_messages(values["messages"], values["add_generation_prompt"])
    if values["prompt"] is None:
        raise RequestError("prompt is missing: give a text, or messages.", param="prompt")
    return await served.encoder.tokenize(values["prompt"], values["add_special_tokens"])


async def write_list(ids: Sequence[int], write: Callable[[int], Any]) -> bytes:
    """Returns a list in JSON; a long one takes many turns of the event loop."""
    parts = []
    for start in range(0, len(ids), CHUNK):
        entries = [write(id) for id in ids[start : start + CHUNK]]
        parts.append(json.dumps(entries)[1:-1].encode())
        await asyncio.sleep(0)
    return b"[" + b", ".join(parts) + b"]"


def describe_tokenizer(pretrained: Pretrained, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what a client that has no tokenizer of its own asks for, under Hugging Face's keys.

    The bos and eos tokens are those that the model uses, which its generation settings may name.
    """
    special, size = tokenizer.special, tokenizer.vocab_size
    start, ends = pretrained.generation.get("bos_token_id"), [id for id in pretrained.eos_ids if id < size]
    unknown = tokenizer.unknown_id
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special.bos if start is None or start >= size else tokenizer.token(start),
        "eos_token": tokenizer.token(ends[0]) if ends else special.eos,
        "pad_token": special.pad,
        "unk_token": None if unknown is None else tokenizer.token(unknown),
        "add_bos_token": bool(pretrained.bos_ids),
        "vocab_size": size,
        "model_max_length": pretrained.config.context_length,
        "chat_template": pretrained.chat_template,
    }
