"""Checks that a model is the same after it is saved and opened again."""

from typing import Any

import numpy as np

from pellucid.base.files import temporary_folder
from pellucid.base.quantized import QuantizedWeight
from pellucid.formats import model_folder
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.verdict import Finding, Judged, Verdict


def measure_saved(subject: Subject) -> Finding:
    before = subject.model.pretrained
    with temporary_folder() as folder:
        model_folder.write(folder / "model", before)
        after = model_folder.read(folder / "model")
        if after.config != before.config:
            return Finding(Verdict.BUG, "the config changed", "config", f"{before.config}\n{after.config}")
        for name in before.weights:
            if not _is_same(subject.weights[name], after.weights[name]):
                return Finding(Verdict.BUG, "the numbers changed", name)
        if _encode(before.tokenizer, subject.text) != _encode(after.tokenizer, subject.text):
            return Finding(Verdict.BUG, "the ids changed", "tokenizer")
        return Finding(Verdict.EQUAL, f"{len(before.weights):,} weights, bit for bit")


def _is_same(before: Any, after: Any) -> bool:
    """Returns whether two weights are equal, of quantized ones integers, scales and minimums."""
    if isinstance(before, QuantizedWeight) and isinstance(after, QuantizedWeight):
        return before.equals(after)
    is_one = isinstance(before, QuantizedWeight) or isinstance(after, QuantizedWeight)
    return not is_one and np.array_equal(before, after, equal_nan=True)


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
        Judged.PROGRAM,
        quick=False,
    ),
)
