"""Checks that no other convention for these weights fits a text better.

It trusts the fast engine, which the checks before it judge, and nothing of the files that they do not.
"""

import math

from pellucid.base.formatting import pluralize
from pellucid.explanation.probe.probe import check_probe, probe_model
from pellucid.explanation.probe.probe_report import OTHER_TOKENIZER, Probe, ReadingVerdict, list_labels
from pellucid.verification.checks.check import Subject
from pellucid.verification.verdict import Finding, Verdict


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
