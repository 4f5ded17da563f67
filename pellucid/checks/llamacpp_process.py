"""A process of its own for llama.cpp: on a file that it does not like it aborts, and would take us with it.

Reads {"path", "ids", "letter", "threads"} as JSON, and writes for each beginning of the ids what it would say
next.
"""

import importlib
import json
import sys
from typing import Any


def next_token(server: Any, ids: list[int], letter: list[int]) -> tuple[int, float]:
    """What it would say next, and its log-probability. A letter is forced to be what is said, because the
    server reports nothing beside an end or half a character."""
    asked = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 1, "cache_prompt": True}
    asked["logit_bias"] = [[id, 1000.0] for id in letter]
    answer = server.handle_completions(asked)
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
    said = [next_token(server, ids[: t + 1], given["letter"]) for t in range(len(ids))]
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
