"""Against llama.cpp, another program for the same file: what each would say next."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.errors import PellucidError, TokenError, quote
from pellucid.interop import gguf
from pellucid.text.tokenizer import Tokenizer

AGREEMENT = 0.99
CLEARLY = 0.1
"""Nats: it rounds activations to 8 bits, so a choice between equals may fall otherwise."""


def said_next(path: Path, ids: list[int], letter: list[int]) -> list[tuple[int, float]]:
    """After each beginning of the ids: the token that llama.cpp would say, and its log-probability."""
    command = [sys.executable, "-m", "pellucid.checks.llamacpp_process"]
    asked = {"path": str(path.absolute()), "ids": ids, "letter": letter, "threads": torch.get_num_threads()}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, errors="replace", env=environment,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}")
    return [(int(token), float(logprob)) for token, logprob in json.loads(done.stdout.splitlines()[-1])]


def choices(subject: Subject) -> Finding:
    ids = subject.all_ids[: subject.config.context_length - 1]  # they want room for what is said
    if not ids:
        return Finding("skipped", "its context has no room for another token")
    if (tokenizer := subject.model.pretrained.tokenizer) is None:
        return Finding("skipped", "it came without a tokenizer, and llama.cpp wants one")
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding("skipped", "llama.cpp is not installed: pip install xllamacpp")
    module = subject.module(torch.float32)
    with torch.no_grad():
        ours = torch.log_softmax(module(torch.tensor([ids], device=module.device))[0].double(), -1).cpu()
    try:
        with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
            path = subject.model.pretrained.source.path
            if path.suffix != ".gguf":
                path = Path(folder) / "model.gguf"
                gguf.write(path, subject.model.pretrained, "F32")
            theirs = said_next(path, ids, _letter(tokenizer))
    except PellucidError as error:
        return Finding("skipped", str(error))
    except Exception as error:  # another program on somebody's file
        return Finding("skipped", f"llama.cpp cannot read this model: {quote(error)}")
    alike, clearly_other, apart = 0, [], 0.0
    for t, (token, logprob) in enumerate(theirs):
        alike += token == int(ours[t].argmax())
        apart += abs(logprob - float(ours[t, token])) / len(theirs)
        if float(ours[t].max() - ours[t, token]) > CLEARLY:
            clearly_other.append(t)
    measured = (
        f"{alike} of {len(ids)} choices alike, {len(clearly_other)} clearly other, "
        f"log-probabilities {apart:.1e} apart"
    )
    if len(clearly_other) > (1 - AGREEMENT) * len(ids):
        t = clearly_other[0]
        story = (
            f"after {tokenizer.decode(ids[: t + 1])!r} llama.cpp says {subject.model.token(theirs[t][0])!r}, "
            f"which is {float(ours[t].max() - ours[t, theirs[t][0]]):.2f} nats below our choice"
        )
        return Finding("BUG", measured, f"logits[t={t}]", story)
    return Finding("equal" if alike == len(ids) else "noise", measured)


def _letter(tokenizer: Tokenizer) -> list[int]:
    """One token that is harmless to say, where the tokenizer has letters."""
    with contextlib.suppress(TokenError):
        return tokenizer.encode("a")[-1:]
    return []


CHECKS = (
    Check(
        "llama.cpp",
        "llama.cpp would say the same next",
        f"{AGREEMENT:.0%} of the choices, but for those within {CLEARLY:g} nats",
        choices,
    ),
)
