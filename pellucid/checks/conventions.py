"""Checks that no other convention for these weights gives a clearly lower loss on a text."""

import math
from dataclasses import replace

from pellucid.cards.probe import make_case, measure_alternatives
from pellucid.checks.check import Check, Subject
from pellucid.errors import TokenError
from pellucid.judge.verdict import Finding, Verdict

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
        given = make_case(subject.config, subject.weights, opened.tokenizer, opened.add_bos)
        given = replace(given, ids=given.ids[:TOKENS])
    except TokenError:
        return Finding(Verdict.SKIPPED, "its tokenizer cannot encode English")
    loss = given.loss()
    others = [found for found in measure_alternatives(given) if found.loss is not None]
    others = [found for found in others if not found.alternative.startswith(CHANGES_TASK)]
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


CHECKS = (
    Check(
        "conventions",
        "No other convention for these weights gives a clearly lower loss on a text.",
        f"{CLEARLY:g} nats",
        measure_other_conventions,
    ),
)
