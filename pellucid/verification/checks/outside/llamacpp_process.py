"""Runs llama.cpp in a separate process: it aborts on a file that it cannot read.

Reads {"path", "ids", "letter", "threads", "texts", "conversations"} as JSON, and writes {"predictions",
"ids", "prompts"}: the most likely next tokens after each prefix of the ids with their log-probabilities; the
ids of each text, as ordinary text, with its special tokens parsed, and as ordinary text after the special
tokens that the file puts in front; and each conversation as its template writes it, null where it cannot.
"""

import importlib
import json
import sys
import urllib.error
import urllib.request
from typing import Any

BEST = 8
"""How many of the most likely tokens are returned."""


def predict_next(server: Any, ids: list[int], letter: list[int]) -> list[tuple[int, float]]:
    """Returns the most likely next tokens with their log-probabilities. The sampled token is forced to be a
    letter, because the server reports no probabilities beside an end of text or half a character."""
    request = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": BEST, "cache_prompt": True}
    request["logit_bias"] = [[id, 1000.0] for id in letter]
    answer = server.handle_completions(request)
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    if (logprobs := answer["choices"][0]["logprobs"]) is None:  # where logits are too large, for example
        raise RuntimeError("it reports no probabilities")
    best = logprobs["content"][0]["top_logprobs"]
    return [(int(entry["id"]), float(entry["logprob"])) for entry in best]


def ask(server: Any, what: str, request: dict[str, Any]) -> Any:
    """Returns the answer of one of the server's other services."""
    body, kind = json.dumps(request).encode(), {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server.listening_address}/{what}", body, kind)
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return json.loads(answer.read())


def encode(server: Any, text: str) -> list[list[int]]:
    """Returns the ids of a text in the three ways."""
    ways = ((False, False), (True, False), (False, True))
    return [
        ask(server, "tokenize", {"content": text, "parse_special": parse, "add_special": add})["tokens"]
        for parse, add in ways
    ]


def render(server: Any, messages: list[dict[str, str]], asking: bool) -> str | None:
    try:
        return str(
            ask(server, "apply-template", {"messages": messages, "add_generation_prompt": asking})["prompt"]
        )
    except urllib.error.HTTPError:
        return None


def main() -> None:
    given = json.load(sys.stdin)
    ids: list[int] = given["ids"]
    xllamacpp: Any = importlib.import_module("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path = given["path"]
    settings.n_ctx, settings.n_parallel, settings.warmup = max(len(ids) + 8, 256), 1, False
    settings.verbosity = -1
    settings.cpuparams.n_threads = given["threads"]
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)
    found = {
        "predictions": [predict_next(server, ids[: t + 1], given["letter"]) for t in range(len(ids))],
        "ids": [encode(server, text) for text in given["texts"]],
        "prompts": [render(server, *conversation) for conversation in given["conversations"]],
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
