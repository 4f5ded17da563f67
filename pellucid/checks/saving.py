"""Saved and opened again: the same model."""

import tempfile
from pathlib import Path

import numpy as np

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.interop import model_folder
from pellucid.text.tokenizer import Tokenizer


def saved(subject: Subject) -> Finding:
    before = subject.model.pretrained
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        model_folder.write(Path(folder) / "model", before)
        after = model_folder.read(Path(folder) / "model")
        if after.config != before.config:
            return Finding("BUG", "another config", "config", f"{before.config}\n{after.config}")
        for name in before.weights:
            if not np.array_equal(subject.weights[name], after.weights[name], equal_nan=True):
                return Finding("BUG", "other numbers", name)
        if _tokens(before.tokenizer, subject.text) != _tokens(after.tokenizer, subject.text):
            return Finding("BUG", "other tokens", "tokenizer")
        return Finding("equal", f"{len(before.weights):,} weights, bit for bit")


def _tokens(tokenizer: Tokenizer | None, text: str) -> object:
    if tokenizer is None:
        return None
    try:
        return tokenizer.encode(text)
    except Exception as error:
        return str(error)


CHECKS = (Check("saved", "saved and opened again it is the same model", "bit for bit", saved, quick=False),)
