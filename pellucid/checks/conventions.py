"""Conventions: no other way of reading these weights makes better sense of a text."""

import math
from dataclasses import replace

from pellucid.cards.probe import case, findings
from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.errors import TokenError

TOKENS = 24
CLEARLY = 0.3
"""Nats by which another reading must be better before this one is called wrong."""
SENSE = 0.75
"""The part of ln V, the surprise of guessing, below which a reading makes any sense: about what is left when
one knows how common each token is."""
SEES_AHEAD = ("no mask", "mask one token ahead", "bos")
"""These change what is asked, not how the weights are read."""


def best_reading(subject: Subject) -> Finding:
    """The loss on a plain English text, against the loss of every other convention."""
    opened = subject.model.pretrained
    if opened.tokenizer is None:
        return Finding("skipped", "it came without a tokenizer, so it reads no text")
    try:
        given = case(subject.config, subject.weights, opened.tokenizer, opened.add_bos)
        given = replace(given, ids=given.ids[:TOKENS])
    except TokenError:
        return Finding("skipped", "it does not read English")
    loss = given.loss()
    others = [found for found in findings(given) if found.loss is not None]
    others = [found for found in others if not found.alternative.startswith(SEES_AHEAD)]
    if not others:
        return Finding("skipped", "no other reading applies")
    nearest = min(others, key=lambda found: found.loss or 0.0)
    assert nearest.loss is not None
    measured = f"loss {loss:.4f}; nearest {nearest.loss:.4f} ({nearest.alternative}), of {len(others)}"
    if min(loss, nearest.loss) > SENSE * math.log(subject.config.vocab_size):
        return Finding("skipped", f"it makes no sense of English in any reading: {measured}")
    if nearest.loss < loss - CLEARLY:
        story = (
            f"the loss is {loss:.4f}, and with another convention ({nearest.alternative}) it is "
            f"{nearest.loss:.4f}: the weights were most likely made for that one."
        )
        return Finding("BUG", measured, f"convention: {nearest.alternative}", story)
    return Finding("equal" if nearest.loss >= loss else "noise", measured)


CHECKS = (
    Check(
        "conventions",
        "no other convention makes better sense of a text",
        f"{CLEARLY:g} nats",
        best_reading,
    ),
)
