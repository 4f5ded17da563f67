"""Checks that no other convention for these weights gives a clearly lower loss on a text."""

import math
from dataclasses import replace

from pellucid.cards.probe import case, findings
from pellucid.checks.check import Check
from pellucid.checks.subject import Subject
from pellucid.errors import TokenError
from pellucid.judge.verdict import Finding, Verdict

TOKENS = 24
CLEARLY = 0.3
"""By how many nats another convention must be better before this one is called wrong."""
SENSE = 0.75
"""The fraction of ln V, the loss of a uniform guess, below which a model makes sense of a text: about the
loss that is left when the frequency of each token is known."""
SEES_AHEAD = ("no mask", "mask one token ahead", "bos")
"""These change the task, not how the weights are read."""


def measure_other_conventions(subject: Subject) -> Finding:
    """Compares the loss on a plain English text with the loss under every other convention."""
    opened = subject.model.pretrained
    if opened.tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer, so it reads no text")
    try:
        given = case(subject.config, subject.weights, opened.tokenizer, opened.add_bos)
        given = replace(given, ids=given.ids[:TOKENS])
    except TokenError:
        return Finding(Verdict.SKIPPED, "it does not read English")
    loss = given.loss()
    others = [found for found in findings(given) if found.loss is not None]
    others = [found for found in others if not found.alternative.startswith(SEES_AHEAD)]
    if not others:
        return Finding(Verdict.SKIPPED, "no other convention applies")
    nearest = min(others, key=lambda found: found.loss or 0.0)
    assert nearest.loss is not None
    measured = f"loss {loss:.4f}; nearest {nearest.loss:.4f} ({nearest.alternative}), of {len(others)}"
    if min(loss, nearest.loss) > SENSE * math.log(subject.config.vocab_size):
        return Finding(Verdict.SKIPPED, f"it makes no sense of English under any convention: {measured}")
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
        "no other convention makes better sense of a text",
        f"{CLEARLY:g} nats",
        measure_other_conventions,
    ),
)
