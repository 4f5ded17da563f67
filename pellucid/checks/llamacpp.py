"""Checks a model against llama.cpp on the same file: the most likely next token after each prefix."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from pellucid.checks.check import Check, Subject
from pellucid.errors import PellucidError, TokenError, quote
from pellucid.interop import gguf
from pellucid.judge.verdict import Finding, Verdict
from pellucid.text.tokenizer import Tokenizer

AGREEMENT = 0.99
CLEARLY = 0.1
"""Nats. llama.cpp rounds activations to 8 bits, so it may choose another of two nearly equal tokens."""


def predict_next(path: Path, ids: list[int], letter: list[int]) -> list[tuple[int, float]]:
    """Returns, for each prefix of the ids, llama.cpp's most likely next token and its log-probability."""
    command = [sys.executable, "-m", "pellucid.checks.llamacpp_process"]
    request = {"path": str(path.absolute()), "ids": ids, "letter": letter, "threads": torch.get_num_threads()}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, input=json.dumps(request), capture_output=True, text=True, errors="replace", env=environment,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}")
    return [(int(token), float(logprob)) for token, logprob in json.loads(done.stdout.splitlines()[-1])]


def measure_choices(subject: Subject) -> Finding:
    ids = subject.all_ids[: subject.config.context_length - 1]  # llama.cpp needs room for the next token
    if not ids:
        return Finding(Verdict.SKIPPED, "its context has no room for another token")
    if (tokenizer := subject.model.pretrained.tokenizer) is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer, and llama.cpp needs one")
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding(Verdict.SKIPPED, "llama.cpp is not installed: pip install xllamacpp")
    module = subject.module(torch.float32)
    with torch.no_grad():
        ours = torch.log_softmax(module(torch.tensor([ids], device=module.device))[0].double(), -1).cpu()
    try:
        with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
            path = subject.model.pretrained.provenance.path
            if path.suffix != ".gguf":
                path = Path(folder) / "model.gguf"
                gguf.write(path, subject.model.pretrained, "F32")
            theirs = predict_next(path, ids, _letter(tokenizer))
    except PellucidError as error:
        return Finding(Verdict.SKIPPED, str(error))
    except Exception as error:  # another program on an untrusted file
        return Finding(Verdict.SKIPPED, f"llama.cpp cannot read this model: {quote(error)}")
    equal, clearly_other, apart = 0, [], 0.0
    for t, (token, logprob) in enumerate(theirs):
        equal += token == int(ours[t].argmax())
        apart += abs(logprob - float(ours[t, token])) / len(theirs)
        if float(ours[t].max() - ours[t, token]) > CLEARLY:
            clearly_other.append(t)
    measured = (
        f"{equal} of {len(ids)} choices equal, {len(clearly_other)} clearly different, "
        f"log-probabilities {apart:.1e} apart"
    )
    if len(clearly_other) > (1 - AGREEMENT) * len(ids):
        t = clearly_other[0]
        predicted = subject.model.token(theirs[t][0])
        message = (
            f"after {tokenizer.decode(ids[: t + 1])!r} llama.cpp predicts {predicted!r}, "
            f"which is {float(ours[t].max() - ours[t, theirs[t][0]]):.2f} nats below our choice"
        )
        return Finding(Verdict.BUG, measured, f"logits[t={t}]", message)
    return Finding(Verdict.EQUAL if equal == len(ids) else Verdict.NOISE, measured)


def _letter(tokenizer: Tokenizer) -> list[int]:
    """Returns the id of the letter a, where the tokenizer has it."""
    with contextlib.suppress(TokenError):
        return tokenizer.encode("a")[-1:]
    return []


CHECKS = (
    Check(
        "llama.cpp",
        "`llama.cpp` predicts the same next tokens from the same file.",
        f"{AGREEMENT:.0%} of the choices, apart from those within {CLEARLY:g} nats",
        measure_choices,
    ),
)
