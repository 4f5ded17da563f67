"""What a wrong convention would cost: the loss on a text as given, and with one choice changed.

Every alternative is a mistake that loads without complaint, from the catalogue of `mistakes`: the program of
the specification with a few steps that are others, run again from the first of them.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import TokenError
from pellucid.judge.mistakes import CONVENTIONS, Mistake, Program, Variant
from pellucid.names import IGNORE_INDEX
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.text.tokenizer import Tokenizer

SAMPLE = (
    "The harbour lay quiet in the early morning. A small boat came in from the sea, and an old man tied it "
    "to the wall. He had caught three fish, which he gave to the children who were waiting for him."
)
MOST_TOKENS = 64
UNNOTICED = 0.05
"""A loss that differs by less is a perplexity that differs by a twentieth: nobody hears it in the text."""


@dataclass(frozen=True)
class Case:
    """A model about to read a text; where `add_bos` holds, `bos` stands before it, uncounted.

    `variant` is the mistake that its program has, and `note` says which: "pairs for halves".
    """

    config: ModelConfig
    weights: Mapping[str, Array]
    ids: tuple[int, ...]
    bos: int | None = None
    add_bos: bool = False
    note: str = ""
    variant: Variant | None = None

    @cached_property
    def tape(self) -> Tape:
        """The right program with its values."""
        before = [self.bos] if self.add_bos and self.bos is not None else []
        ids, targets = [*before, *self.ids[:-1]], [IGNORE_INDEX] * len(before) + list(self.ids[1:])
        with np.errstate(all="ignore"):
            return forward(self.config, self.weights, [ids], [targets])

    def loss(self) -> float:
        """The loss averaged over the text's tokens but the first, whatever stands before it."""
        if self.variant is None:
            return float(self.tape["loss"])
        with np.errstate(all="ignore"):  # a wrong convention may overflow, and its loss says so
            return float(self.variant.rerun(self.tape)["loss"])


@dataclass(frozen=True)
class Finding:
    """An alternative with its loss, or None where it does not apply to the model."""

    alternative: str
    loss: float | None


@dataclass(frozen=True)
class Probe:
    """The loss as given, and with each alternative that applies, the most harmful first."""

    loss: float
    tokens: int
    findings: tuple[Finding, ...]
    not_applied: tuple[str, ...]


def case(
    config: ModelConfig,
    weights: Mapping[str, Array],
    tokenizer: Tokenizer,
    add_bos: bool = False,
    text: str = SAMPLE,
) -> Case:
    """A text for a model to read, and its weights in float64, held once for every alternative to share."""
    ids = tokenizer.encode(text)[: min(MOST_TOKENS, config.context_length)]
    if len(ids) < 2:
        raise TokenError("a loss needs a text of at least two tokens.")
    bos = None if tokenizer.special.bos is None else tokenizer.id_of(tokenizer.special.bos)
    held = {name: np.asarray(weights[name], dtype=np.float64) for name in config.parameters()}
    return Case(config, held, tuple(ids), bos, add_bos)


def findings(given: Case) -> Iterator[Finding]:
    """Run every alternative, one after the other."""
    for name, change in ALTERNATIVES.items():
        if changed := change(given):
            yield Finding(f"{name}: {changed.note}" if changed.note else name, changed.loss())
        else:
            yield Finding(name, None)


def probe(given: Case, seen: Callable[[Finding], None] = lambda _: None) -> Probe:
    """Run them all, and sort them by damage; `seen` is told of each as it comes."""
    loss, found = given.loss(), []
    for finding in findings(given):
        seen(finding)
        found.append(finding)
    applied = [f for f in found if f.loss is not None]
    applied.sort(key=lambda f: -abs(_damage(loss, f)))
    return Probe(
        loss, len(given.ids) - 1, tuple(applied), tuple(f.alternative for f in found if f.loss is None)
    )


def _damage(loss: float, finding: Finding) -> float:
    assert finding.loss is not None
    return finding.loss - loss if np.isfinite(finding.loss) else np.inf


def remark(loss: float, finding: Finding) -> str:
    damage = _damage(loss, finding)
    if abs(damage) < 1e-12:
        return "no difference at all"
    if abs(damage) < UNNOTICED:
        return "would not be noticed by reading text"
    if damage < 0:
        return "lower, and wrong: too good to be true"
    return "a worse model, it seems" if damage < 1 else "breaks the text"


def lines(done: Probe, width: int = 110) -> Iterator[str]:
    first = max(len(f.alternative) for f in done.findings) + 2
    yield f"loss over {done.tokens} tokens, in float64:"
    yield f"{'as given':<{first}}{done.loss:>9.4f}"
    for finding in done.findings:
        assert finding.loss is not None
        damage = finding.loss - done.loss
        told = f"{damage:>+12.2e}" if abs(damage) < 1e-4 else f"{damage:>+12.4f}"
        yield f"{finding.alternative:<{first}}{finding.loss:>9.4f}{told}  {remark(done.loss, finding)}"
    if done.not_applied:
        yield from textwrap.wrap(f"does not apply to this model: {'; '.join(done.not_applied)}.", width)


# ---- the alternatives

Change = Callable[[Case], Case | None]


def _likeliest(mistake: Mistake) -> Change:
    """The first variant of a mistake in the program that reads this text."""

    def change(given: Case) -> Case | None:
        variant = next(mistake(Program(given.tape, given.config)), None)
        if variant is None:
            return None
        changed = replace(given, variant=variant, note=variant.note)
        vars(changed)["tape"] = given.tape  # the right program is the same, and need not run again
        return changed

    return change


def bos(given: Case) -> Case | None:
    if given.bos is None or len(given.ids) >= given.config.context_length:
        return None
    return replace(
        given, add_bos=not given.add_bos, note="left out" if given.add_bos else "put before the text"
    )


ALTERNATIVES: dict[str, Change] = {name: _likeliest(mistake) for name, mistake in CONVENTIONS.items()}
ALTERNATIVES["bos"] = bos
