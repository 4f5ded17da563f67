"""Checks that no other convention for these weights gives a clearly lower loss on a text."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pellucid.cards.probe import ALTERNATIVES, AlternativeLoss, Case, make_case
from pellucid.checks.check import Check, Subject
from pellucid.errors import TokenError
from pellucid.judge.verdict import Finding, Verdict
from pellucid.names import IGNORE_INDEX
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.text.sample import SAMPLE
from pellucid.text.tokenizer import Tokenizer

TOKENS = 24
CLEARLY = 0.3
"""How many nats lower the loss under another convention must be for this one to be a bug."""
PREDICTS = 0.75
"""The fraction of ln V, the loss of a uniform guess, below which a model predicts a text: about the loss of
knowing the frequency of each token."""
CHANGES_TASK = ("no mask", "mask one token ahead", "bos")
"""These change the task, not how the weights are read."""


def measure_other_conventions(subject: Subject) -> Finding:
    """Compares the loss on a plain English text with the loss under every other convention."""
    opened = subject.model.pretrained
    if opened.tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer, so it cannot read text")
    try:
        given = _make_case(subject, opened.tokenizer, opened.add_bos)
    except TokenError:
        return Finding(Verdict.SKIPPED, "its tokenizer cannot encode English")
    loss = given.loss()
    others = list(_measure_others(given))
    if not others:
        return Finding(Verdict.SKIPPED, "no other convention applies")
    nearest = min(others, key=lambda found: found.loss or 0.0)
    assert nearest.loss is not None
    measured = f"loss {loss:.4f}; nearest {nearest.loss:.4f} ({nearest.alternative}), of {len(others)}"
    if min(loss, nearest.loss) > PREDICTS * math.log(subject.config.vocab_size):
        return Finding(Verdict.SKIPPED, f"it does not predict English under any convention: {measured}")
    if nearest.loss < loss - CLEARLY:
        message = (
            f"the loss is {loss:.4f}, and with another convention ({nearest.alternative}) it is "
            f"{nearest.loss:.4f}: the weights were most likely made for that one."
        )
        return Finding(Verdict.BUG, measured, f"convention: {nearest.alternative}", message)
    return Finding(Verdict.EQUAL if nearest.loss >= loss else Verdict.NOISE, measured)


def _make_case(subject: Subject, tokenizer: Tokenizer, add_bos: bool) -> Case:
    """Returns the model and the text. A large model computes in float32, where a loss is off by 1e-5: that
    takes half the memory and two thirds of the time."""
    if not subject.is_large:
        given = make_case(subject.config, subject.weights, tokenizer, add_bos)
        return replace(given, ids=given.ids[:TOKENS])
    ids = tokenizer.encode(SAMPLE)[:TOKENS]
    if len(ids) < 2:
        raise TokenError("a loss needs a text of at least two tokens.")
    before = subject.model.pretrained.bos_ids
    read, targets = [*before, *ids[:-1]], [IGNORE_INDEX] * len(before) + ids[1:]
    weights = subject.float_weights()
    given = Case(subject.config, weights, tuple(ids))
    with np.errstate(all="ignore"):
        tape = forward(subject.config, weights, [read], [targets], make_tape=lambda: Tape(np.float32))
    vars(given)["tape"] = tape
    return given


def _measure_others(given: Case) -> Iterator[AlternativeLoss]:
    """Yields the loss under each other convention that applies."""
    for name, change in ALTERNATIVES.items():
        if not name.startswith(CHANGES_TASK) and (changed := change(given)):
            label = f"{name}: {changed.note}" if changed.note else name
            loss = changed.loss()
            yield AlternativeLoss(label, loss if math.isfinite(loss) else math.inf)


CHECKS = (
    Check(
        "conventions",
        "No other convention for these weights gives a clearly lower loss on a text.",
        f"{CLEARLY:g} nats",
        measure_other_conventions,
    ),
)
