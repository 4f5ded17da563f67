"""What a wrong convention would cost: the loss on a text as given, and with one choice changed.

Every alternative is a mistake that loads without an error, from the catalogue of `mistakes`: the program of
the specification with a few steps replaced, run again from the first of them.
"""

import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import TokenError, UsageError
from pellucid.format import format_bytes
from pellucid.judge.mistakes import CONVENTIONS, Mistake, Program, Variant
from pellucid.names import IGNORE_INDEX
from pellucid.pretrained import Pretrained, parameter_count
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.text.sample import SAMPLE, make_sample
from pellucid.text.tokenizer import Tokenizer

MAX_TOKENS = 64
UNNOTICED = 0.05
"""A smaller difference in loss changes the perplexity by less than 5 %: it cannot be noticed in the text."""


@dataclass(frozen=True)
class Case:
    """A model and a text to score; with `add_bos`, `bos` precedes the text and is not scored.

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
        """Returns the loss averaged over the text's tokens but the first."""
        if self.variant is None:
            return float(self.tape["loss"])
        with np.errstate(all="ignore"):  # a wrong convention may overflow, and its loss says so
            return float(self.variant.rerun(self.tape)["loss"])


@dataclass(frozen=True)
class AlternativeLoss:
    """An alternative with its loss, or None where it does not apply to the model."""

    alternative: str
    loss: float | None


@dataclass(frozen=True)
class Probe:
    """The loss as given, and with each alternative that applies, the most harmful first."""

    loss: float
    tokens: int
    findings: tuple[AlternativeLoss, ...]
    not_applied: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Returns plain data; a loss that is not finite is None."""
        alternatives = [
            {
                "alternative": f.alternative,
                "loss": f.loss if f.loss is not None and np.isfinite(f.loss) else None,
                "remark": remark(self.loss, f),
            }
            for f in self.findings
        ]
        about = {"tokens": self.tokens, "loss": self.loss}
        return about | {"alternatives": alternatives, "not_applied": list(self.not_applied)}


def make_case(
    config: ModelConfig,
    weights: Mapping[str, Array],
    tokenizer: Tokenizer,
    add_bos: bool = False,
    text: str = SAMPLE,
) -> Case:
    """Returns a model and a text, with its weights in float64, shared by all alternatives."""
    ids = encode_text(config, tokenizer, text)
    bos = None if tokenizer.special.bos is None else tokenizer.id_of(tokenizer.special.bos)
    held = {name: np.asarray(weights[name], dtype=np.float64) for name in config.parameters()}
    return Case(config, held, tuple(ids), bos, add_bos)


def encode_text(config: ModelConfig, tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of the beginning of a text; refuses one without a token that is predicted."""
    ids = tokenizer.encode(text)[: min(MAX_TOKENS, config.context_length)]
    if len(ids) < 2:
        raise TokenError("a loss needs a text of at least two tokens.")
    return ids


def probe_model(
    model: Pretrained, text: str | None = None, report: Callable[[AlternativeLoss], None] = lambda _: None
) -> Probe:
    """Returns the probe of a model on `text`, where the memory of this machine is enough for it."""
    return probe(case_of(model, text), report)


def check_probe(model: Pretrained, text: str | None = None) -> str:
    """Returns why there is nothing to probe, "" where there is; raises where a text that was given cannot be
    read, or the memory of this machine is too small. Call it before the work."""
    if model.tokenizer is None:
        return f"{model.name} has no tokenizer, so the probe cannot encode a text."
    if model.config.context_length < 2:
        return f"{model.name} has a context of one token, so that there is no token that it predicts."
    if text is None and not make_sample(model.tokenizer):
        return f"{model.name} has no two tokens that a text can be made of: give one with --text."
    if text is not None:
        encode_text(model.config, model.tokenizer, text)
    # float64 weights, a changed copy of some of them, and the values of one forward pass
    needed, here = 14 * parameter_count(model.config.parameters()), _memory()
    if here is not None and needed > here:
        raise UsageError(
            f"the probe computes in float64 and needs about {format_bytes(needed)} of memory for this model; "
            f"this machine has {format_bytes(here)}. Use a smaller model of the same family."
        )
    return ""


def case_of(model: Pretrained, text: str | None = None) -> Case:
    """Returns the case of a model that reads `text`, or a sample of what its tokenizer encodes."""
    if why := check_probe(model, text):
        raise UsageError(why)
    tokenizer = model.need_tokenizer()
    read = make_sample(tokenizer) if text is None else text
    return make_case(model.config, model.weights, tokenizer, model.add_bos, read)


def _memory() -> int | None:
    """Returns the bytes of memory of this machine, None where it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def measure_alternatives(given: Case) -> Iterator[AlternativeLoss]:
    """Yields the loss of every alternative."""
    for name, change in ALTERNATIVES.items():
        if changed := change(given):
            yield AlternativeLoss(f"{name}: {changed.note}" if changed.note else name, changed.loss())
        else:
            yield AlternativeLoss(name, None)


def probe(given: Case, seen: Callable[[AlternativeLoss], None] = lambda _: None) -> Probe:
    """Measures all alternatives, and sorts them by damage; `seen` is called with each."""
    loss, found = given.loss(), []
    for finding in measure_alternatives(given):
        seen(finding)
        found.append(finding)
    applied = [f for f in found if f.loss is not None]
    applied.sort(key=lambda f: -abs(_damage(loss, f)))
    return Probe(
        loss, len(given.ids) - 1, tuple(applied), tuple(f.alternative for f in found if f.loss is None)
    )


def _damage(loss: float, finding: AlternativeLoss) -> float:
    assert finding.loss is not None
    return finding.loss - loss if np.isfinite(finding.loss) else np.inf


def remark(loss: float, finding: AlternativeLoss) -> str:
    damage = _damage(loss, finding)
    if abs(damage) < 1e-12:
        return "no difference"
    if abs(damage) < UNNOTICED:
        return "not noticeable in the text"
    if damage < 0:
        return "lower: suspicious, as if it saw its targets"
    return "looks like a worse model" if damage < 1 else "breaks the text"


def lines(done: Probe, width: int = 110) -> Iterator[str]:
    first = max(len(f.alternative) for f in done.findings) + 2
    yield f"loss over {done.tokens} tokens, in float64:"
    yield f"{'as given':<{first}}{done.loss:>9.4f}"
    for finding in done.findings:
        assert finding.loss is not None
        damage = finding.loss - done.loss
        shown = f"{damage:>+12.2e}" if abs(damage) < 1e-4 else f"{damage:>+12.4f}"
        yield f"{finding.alternative:<{first}}{finding.loss:>9.4f}{shown}  {remark(done.loss, finding)}"
    if done.not_applied:
        yield from textwrap.wrap(f"does not apply to this model: {'; '.join(done.not_applied)}.", width)


# ---- the alternatives

Change = Callable[[Case], Case | None]


def _apply_first_variant(mistake: Mistake) -> Change:
    """Returns the change to the first variant of a mistake, None where it does not apply."""

    def change(given: Case) -> Case | None:
        variant = next(mistake(Program(given.tape, given.config)), None)
        if variant is None:
            return None
        changed = replace(given, variant=variant, note=variant.note)
        vars(changed)["tape"] = given.tape  # the right program is the same and need not run again
        return changed

    return change


def toggle_bos(given: Case) -> Case | None:
    if given.bos is None or len(given.ids) >= given.config.context_length:
        return None
    return replace(given, add_bos=not given.add_bos, note="omitted" if given.add_bos else "added")


ALTERNATIVES: dict[str, Change] = {
    name: _apply_first_variant(mistake) for name, mistake in CONVENTIONS.items()
}
ALTERNATIVES["bos"] = toggle_bos
