"""The findings of a probe: each alternative with its evidence, and the verdict on all, as text and data."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pellucid.base.formatting import pluralize
from pellucid.explanation.probe.difference import ERRORS, MeanDifference

OTHER_TOKENIZER = (
    "the ids of the text mean no more to this model than other ids, so that it was most likely trained with "
    "the tokenizer of another model"
)
TOO_SMALL = 1e-3
"""Nats a token below which two readings are as good as each other: a tenth of a percent of perplexity."""
MOST_NEEDED = 1e6
"""Tokens above which it is not said how many would decide."""


class ReadingVerdict(StrEnum):
    """The verdict of a text on an alternative, or on all."""

    RIGHT = "right"
    """The given reading: each other is worse, by more than 4 standard errors."""
    BETTER = "another fits better"
    UNDECIDED = "cannot tell"


@dataclass(frozen=True)
class OtherReading:
    """Another reading with its evidence."""

    choice: str
    note: str
    fit: ReadingVerdict
    difference: MeanDifference
    """Its −ln p less that of the given reading."""
    part: str = ""
    """The tokens that decided, where not all together: "far tokens"."""
    key: str = ""
    """The key of config.json that says it."""

    @property
    def label(self) -> str:
        return f"{self.choice}: {self.note}" if self.note else self.choice


@dataclass(frozen=True)
class Probe:
    """The loss as given, and each alternative that applies, the most harmful first."""

    loss: float
    entropy: float
    tokens: int
    alternatives: tuple[OtherReading, ...]
    not_applied: tuple[str, ...] = ()
    reason: str = ""
    """The reason why this text cannot tell anything, where it cannot."""
    precision: str = "float64"

    @property
    def better(self) -> tuple[OtherReading, ...]:
        """The alternatives that fit better, the best first."""
        found = [one for one in self.alternatives if one.fit is ReadingVerdict.BETTER]
        return tuple(sorted(found, key=lambda one: one.difference.mean))

    @property
    def undecided(self) -> tuple[OtherReading, ...]:
        return tuple(one for one in self.alternatives if one.fit is ReadingVerdict.UNDECIDED)

    @property
    def fit(self) -> ReadingVerdict:
        if self.better:
            return ReadingVerdict.BETTER
        return (
            ReadingVerdict.RIGHT if len(self.undecided) < len(self.alternatives) else ReadingVerdict.UNDECIDED
        )

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest difference in nats that would have been seen, of the alternatives that
        are not decided; of all, where each is."""
        some = self.undecided or self.alternatives
        found = [one.difference.limit for one in some if 0 < one.difference.limit < math.inf]
        return (min(found), max(found)) if found else (math.inf, math.inf)

    def to_data(self) -> dict[str, Any]:
        """Returns plain data; what is not finite is None."""

        def finite(x: float) -> float | None:
            return float(x) if math.isfinite(x) else None

        alternatives = [
            {
                "choice": one.choice,
                "alternative": one.note,
                "key": one.key,
                "verdict": str(one.fit),
                "difference": finite(one.difference.mean),
                "standard_error": finite(one.difference.error),
                "tokens": one.difference.tokens,
                "tokens_that_would_decide": finite(one.difference.needed)
                if one.fit is ReadingVerdict.UNDECIDED
                else None,
            }
            for one in self.alternatives
        ]
        return {
            "tokens": self.tokens,
            "loss": finite(self.loss),
            "entropy": finite(self.entropy),
            "verdict": str(self.fit),
            "reason": self.reason,
            "alternatives": alternatives,
            "not_applied": list(self.not_applied),
        }


def remark(one: OtherReading) -> str:
    """Returns what the evidence says of an alternative, in words."""
    if one.fit is ReadingVerdict.BETTER:
        return "fits better"
    if one.fit is ReadingVerdict.RIGHT:
        return "worse"
    difference = one.difference
    if difference.error == 0 and difference.mean == 0:
        return "cannot tell: no difference"
    if abs(difference.mean) + difference.limit < TOO_SMALL:
        return f"cannot tell: less than {TOO_SMALL:g} nats"
    if not difference.tokens < difference.needed < MOST_NEEDED:
        return "cannot tell"
    return f"cannot tell: {_round_up(difference.needed):,} tokens would decide"


def _round_up(x: float) -> int:
    unit = 10 ** max(int(math.log10(max(x, 1))) - 1, 0)
    return int(math.ceil(x / unit) * unit)


def _show_nats(x: float) -> str:
    """Returns four decimals, or the power of ten of what is too small for them."""
    return f"{x:.1e}" if x and abs(x) < 5e-4 else f"{x:.4f}"


def lines(done: Probe, width: int = 110) -> Iterator[str]:
    """Yields the probe as text: the loss, a line for each alternative, and what follows."""
    yield f"loss {done.loss:.4f} nats a token over {pluralize(done.tokens, 'token')}, in {done.precision};"
    yield "with one choice changed, ± one standard error:"
    first = max((len(one.label) for one in done.alternatives), default=0) + 2
    for one in done.alternatives:
        difference = one.difference
        sign = "" if difference.mean < 0 else "+"
        error = "" if math.isnan(difference.error) else f" ± {_show_nats(difference.error)}"
        shown = f"{sign}{_show_nats(difference.mean)}{error}"
        where = f"{difference.tokens:,} {one.part or 'tokens'}"
        yield f"{one.label:<{first}}{shown:<20}{where:<20}{remark(one)}".rstrip()
    if done.not_applied:
        yield from textwrap.wrap(f"does not apply to this model: {'; '.join(done.not_applied)}.", width)
    yield from textwrap.wrap(summarize(done), width)


def summarize(done: Probe) -> str:
    """Returns what the text says of the reading that is given."""
    if done.better:
        best, *others = done.better
        if best.choice == "tokenizer":
            return f"another tokenizer fits better: {OTHER_TOKENIZER}."
        by = f"{_show_nats(-best.difference.mean)} ± {_show_nats(best.difference.error)} nats a token"
        where = f" (in config.json: {best.key})" if best.key else ""
        text = f"another reading fits better: {best.label}{where}, by {by}."
        if others:
            text += f" So do these, perhaps only until that is changed: {list_labels(others)}."
        return text
    if done.reason:
        return f"cannot tell: {done.reason}. Give a text of its own kind with --text."
    count = len(done.alternatives) - len(done.undecided)
    text = f"{count} of {pluralize(len(done.alternatives), 'other reading')} are worse, "
    text += f"by more than {ERRORS:g} standard errors."
    if done.undecided:
        text += f" Cannot tell: {list_labels(done.undecided)}."
    least, most = done.limits
    if math.isfinite(least):
        span = f"{least:.1g}" if least == most else f"{least:.1g} to {most:.1g}"
        text += f" A difference of {span} nats a token would have been seen."
    return text


def list_labels(alternatives: Sequence[OtherReading]) -> str:
    return "; ".join(one.label for one in alternatives)
