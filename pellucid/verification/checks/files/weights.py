"""Checks the weights as they are: every one is a finite number; they are the same after the model is saved
and opened again; and no other convention for them fits a text better. The last trusts the fast engine, which
the checks before it judge, and nothing of the files that they do not."""

import math
from typing import Any

import numpy as np

from pellucid.base.files import temporary_folder
from pellucid.base.formatting import pluralize
from pellucid.base.quantized import QuantizedWeight
from pellucid.explanation.probe.probe import check_probe, probe_model
from pellucid.explanation.probe.probe_report import OTHER_TOKENIZER, Probe, ReadingVerdict, list_labels
from pellucid.formats import model_folder
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.verdict import Finding, Verdict

LISTED = 10
"""How many damaged weights are listed by name."""


def measure_finite(subject: Subject) -> Finding:
    """Finds NaN and Inf. One NaN makes every value after it NaN, and two engines that agree on NaN agree on
    nothing."""
    count, damaged, lines = 0, list[str](), list[str]()
    for name, weight in subject.weights.items():
        count += weight.size
        if np.isfinite(weight).all():
            continue
        damaged.append(name)
        if len(lines) < LISTED:
            cells = np.argwhere(~np.isfinite(weight))
            index = tuple(int(i) for i in cells[0])
            at = f"{name}[{','.join(map(str, index))}]"
            many = f"{len(cells):,} of {weight.size:,} numbers"
            lines.append(f"{at} is {weight[index]}; NaN or Inf in {many} of {name}")
    if not damaged:
        return Finding(Verdict.EQUAL, f"{count:,} numbers")
    if len(damaged) > LISTED:
        lines.append(f"and {len(damaged) - LISTED:,} more weights")
    measured = f"NaN or Inf in {len(damaged):,} of {len(subject.weights):,} weights"
    return Finding(Verdict.BUG, measured, damaged[0], "\n".join(lines))


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


def measure_other_conventions(subject: Subject) -> Finding:
    """Compares the loss of each token of a text with its loss under every other convention."""
    opened = subject.model.pretrained
    if why := check_probe(opened, subject.evidence):
        return Finding(Verdict.SKIPPED, why)
    device = subject.model.resolve_device()
    done = probe_model(
        opened, subject.evidence, weights=subject.weights, device=device, is_quick=subject.is_quick
    )
    return describe_probe(done)


def describe_probe(done: Probe) -> Finding:
    """Returns the finding of a probe."""
    measured = f"loss {done.loss:.4f} over {pluralize(done.tokens, 'token')}"
    if done.fit is ReadingVerdict.BETTER:
        best = done.better[0]
        if best.choice == "tokenizer":
            return Finding(Verdict.BUG, measured, f"convention: {best.label}", f"{OTHER_TOKENIZER}.")
        by = f"{-best.difference.mean:.4f} ± {best.difference.error:.4f} nats a token"
        where = f" (in config.json: {best.key})" if best.key else ""
        message = f"with another convention, {best.label}{where}, the loss is lower by {by}: "
        message += "the weights were most likely made for that one."
        return Finding(Verdict.BUG, f"{measured}; lower by {by}", f"convention: {best.label}", message)
    if done.reason:
        return Finding(Verdict.UNKNOWN, done.reason)
    undecided = tuple(one.label for one in done.undecided)
    worse = len(done.alternatives) - len(undecided)
    least, most = done.limits
    measured += f"; {worse} of {len(done.alternatives)} others are worse"
    if undecided:
        measured += f"; cannot tell: {list_labels(done.undecided)}"
        measured += f"; {least:.1g} to {most:.1g} nats would show" if math.isfinite(most) else ""
    return Finding(
        Verdict.RIGHT if worse else Verdict.UNKNOWN, measured, undecided=undecided if worse else ()
    )
