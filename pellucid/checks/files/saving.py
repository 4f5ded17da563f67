"""Checks that a model is the same after it is saved and opened again."""

import tempfile
from pathlib import Path

import numpy as np

from pellucid.checks.check import Check, Subject
from pellucid.interop import model_folder
from pellucid.judge.verdict import Finding, Verdict
from pellucid.text.tokenizer import Tokenizer


def measure_saved(subject: Subject) -> Finding:
    before = subject.model.pretrained
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        model_folder.write(Path(folder) / "model", before)
        after = model_folder.read(Path(folder) / "model")
        if after.config != before.config:
            return Finding(Verdict.BUG, "the config changed", "config", f"{before.config}\n{after.config}")
        for name in before.weights:
            if not np.array_equal(subject.weights[name], after.weights[name], equal_nan=True):
                return Finding(Verdict.BUG, "the numbers changed", name)
        if _encode(before.tokenizer, subject.text) != _encode(after.tokenizer, subject.text):
            return Finding(Verdict.BUG, "the ids changed", "tokenizer")
        return Finding(Verdict.EQUAL, f"{len(before.weights):,} weights, bit for bit")


def _encode(tokenizer: Tokenizer | None, text: str) -> object:
    if tokenizer is None:
        return None
    try:
        return tokenizer.encode(text)
    except Exception as error:
        return str(error)


CHECKS = (
    Check(
        "saved",
        "The model is the same after it is saved and opened again.",
        "bit for bit",
        measure_saved,
        quick=False,
    ),
)
