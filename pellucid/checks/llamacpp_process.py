"""Runs llama.cpp in a separate process: it aborts on a file that it cannot read.

Reads {"path", "ids", "letter", "threads"} as JSON, and writes the most likely next token after each prefix of
the ids, with its log-probability.
"""

import importlib
import json
import sys
from typing import Any


def next_token(server: Any, ids: list[int], letter: list[int]) -> tuple[int, float]:
    """Returns the most likely next token and its log-probability. The sampled token is forced to be a letter,
    because the server reports no probabilities beside an end of text or half a character."""
    request = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 1, "cache_prompt": True}
    request["logit_bias"] = [[id, 1000.0] for id in letter]
    answer = server.handle_completions(request)
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    best = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]
    return int(best["id"]), float(best["logprob"])


def main() -> None:
    given = json.load(sys.stdin)
    ids: list[int] = given["ids"]
    xllamacpp: Any = importlib.import_module("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path = given["path"]
    settings.n_ctx, settings.n_parallel, settings.warmup = max(len(ids) + 8, 256), 1, False
    settings.verbosity = -1
    settings.cpuparams.n_threads = given["threads"]
    server = xllamacpp.Server(settings)
    predicted = [next_token(server, ids[: t + 1], given["letter"]) for t in range(len(ids))]
    print(json.dumps(predicted), flush=True)


if __name__ == "__main__":
    main()
