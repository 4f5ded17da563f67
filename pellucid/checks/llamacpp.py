"""Against llama.cpp, another program for the same file: what each would say next."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.errors import PellucidError
from pellucid.interop import gguf

AGREEMENT = 0.99
CLEARLY = 0.1
"""Nats: it rounds activations to 8 bits, so a choice between equals may fall otherwise."""


@contextlib.contextmanager
def their_server(path: Path, tokens: int) -> Iterator[Any]:
    """llama.cpp with a file open, its chatter kept away from the terminal."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel, settings.warmup = max(tokens + 8, 256), 1, False
    settings.cpuparams.n_threads = os.cpu_count() or 1
    sys.stderr.flush()
    aside, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield xllamacpp.Server(settings)
    finally:
        os.dup2(aside, 2)
        os.close(aside)
        os.close(nowhere)


def next_token(server: Any, ids: list[int]) -> tuple[int, float]:
    """What it would say next, and its log-probability."""
    asked = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 1, "cache_prompt": True}
    best = server.handle_completions(asked)["choices"][0]["logprobs"]["content"][0]
    return int(best["id"]), float(best["logprob"])


def choices(subject: Subject) -> Finding:
    ids = subject.all_ids
    module = subject.module(torch.float32)
    with torch.no_grad():
        ours = torch.log_softmax(module(torch.tensor([ids], device=module.device))[0].double(), -1).cpu()
    try:
        with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
            path = subject.model.pretrained.source.path
            if path.suffix != ".gguf":
                path = Path(folder) / "model.gguf"
                gguf.write(path, subject.model.pretrained, "F32")
            with their_server(path, len(ids)) as server:
                theirs = [next_token(server, ids[: t + 1]) for t in range(len(ids))]
    except ImportError:
        return Finding("skipped", "llama.cpp is not installed: pip install xllamacpp")
    except PellucidError as error:
        return Finding("skipped", f"no GGUF architecture expresses this model: {error}")
    except Exception as error:  # another program on somebody's file
        return Finding(
            "skipped", f"llama.cpp cannot read this model: {str(error).partition(chr(10))[0][:200]}"
        )
    alike, clearly_other, apart = 0, [], 0.0
    for t, (token, logprob) in enumerate(theirs):
        alike += token == int(ours[t].argmax())
        apart += abs(logprob - float(ours[t, token])) / len(theirs)
        if float(ours[t].max() - ours[t, token]) > CLEARLY:
            clearly_other.append(t)
    measured = f"{alike} of {len(ids)} choices alike, log-probabilities {apart:.1e} apart"
    if len(clearly_other) > (1 - AGREEMENT) * len(ids):
        t = clearly_other[0]
        story = (
            f"after {self_text(subject, ids[: t + 1])} llama.cpp says {subject.model.token(theirs[t][0])!r}, "
            f"which is {float(ours[t].max() - ours[t, theirs[t][0]]):.2f} nats below our choice"
        )
        return Finding("BUG", measured, f"logits[t={t}]", story)
    return Finding("equal" if alike == len(ids) else "noise", measured)


def self_text(subject: Subject, ids: list[int]) -> str:
    known = subject.model.pretrained.tokenizer
    return repr(known.decode(ids)) if known else str(ids)


CHECKS = (
    Check(
        "llama.cpp",
        "llama.cpp would say the same next",
        f"{AGREEMENT:.0%} of the choices, but for those within {CLEARLY:g} nats",
        choices,
    ),
)
