"""The evidence of a text for how a model's weights are read: each other reading on the same text.

The fast engine reads the text as given and with one choice changed. A difference decides where it is above 4
standard errors; an alternative is read no further than where it is decided that it is worse.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pellucid.base.errors import PellucidError, ResourceError, TokenError, UsageError
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.explanation.probe.difference import (
    BLOCK,
    ERRORS,
    LEAST_BLOCKS,
    MeanDifference,
    measure_difference,
)
from pellucid.explanation.probe.probe_report import TOO_SMALL, OtherReading, Probe, ReadingVerdict
from pellucid.explanation.probe.readings import CONVENTIONS, Convention, ModelReading
from pellucid.explanation.probe.text_reader import PIECE, ScoredPiece, TextReader, cut_rows, make_module
from pellucid.explanation.probe.token_evidence import compare_beginnings, find_other_tokenizer
from pellucid.formats.pretrained import Pretrained, parameter_count
from pellucid.text.sample import make_sample
from pellucid.text.tokenizer import Tokenizer

LARGE = 2**22
"""Parameters from which on a text is read in float32, and not in float64."""
MOST_TOKENS, QUICK_TOKENS = 3_000, 1_000
"""Tokens of our own text that are read; of a given one, all."""
PREDICTS = 0.75
"""The fraction of ln V, the loss of a uniform guess, below which a model predicts a text: about the loss of
knowing the frequency of each token."""
FITS = 1.25
"""The multiple of its entropy that the loss of a model may be on a text of its own kind. On another kind a
wrong reading, which is less sure of itself, may fit a little better than the right one."""
MUCH = 0.2
"""The fraction of the loss by which a reading is better that is believed on any text."""
COMPARED_QUERIES = 256
"""Queries, the last of a window, by which two masks are compared: of these the most is hidden."""
LEAST_IDS = 200
"""The fewest tokens of a text by which a tokenizer is judged."""
FEWEST_BLOCKS = 15
"""Blocks after which an alternative is given up that the rest of the text would not decide either."""
MOST_STEPS = 6
"""The most steps from the best alternative of a choice to one that is beyond it."""
TIE = 0.005
"""The fraction of a gain by which two readings are as good as each other."""
STEP = 0.05
"""The fraction of a gain by which another is larger that counts as better."""


@cache
def read_prose() -> str:
    """Returns our own text of some 2,900 tokens: a story, a deed, natural history, a play and verse, so that
    rare words and words of long ago occur."""
    return Path(__file__).with_name("prose.txt").read_text("utf-8")


def choose_text(tokenizer: Tokenizer) -> str:
    """Returns our own text, or a sample of what the tokenizer encodes where it does not know it."""
    prose = read_prose()
    try:
        ids = tokenizer.encode(prose)
    except PellucidError:
        return make_sample(tokenizer)
    return make_sample(tokenizer) if tokenizer.unknown_id in ids else prose


def encode_evidence(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a text that was given; refuses one without a token that is predicted."""
    ids = tokenizer.encode(text)
    if len(ids) < 2:
        count = pluralize(len(ids), "token")
        raise TokenError(f"the text has {count}, and a loss needs at least two tokens: give a longer --text.")
    return ids


def check_probe(model: Pretrained, text: str | None = None) -> str:
    """Returns why there is nothing to probe, "" where there is; raises where a text that was given cannot be
    read, or the memory of this machine is too small. Call it before the work."""
    if model.tokenizer is None:
        return f"{model.name} has no tokenizer, so it cannot read a text."
    if model.config.context_length - len(model.bos_ids) < 1 or model.config.context_length < 2:
        return f"{model.name} has a context of one token, so that there is no token that it predicts."
    if model.config.mask.bidirectional_prefix:
        return f"{model.name} lets tokens attend to later ones, so it predicts no text from left to right."
    if text is None and not make_sample(model.tokenizer):
        return f"{model.name} has no two tokens that a text can be made of: give one with --text."
    if text is not None:
        encode_evidence(model.tokenizer, text)
    # float32 weights, a changed copy of the largest, and the values of one forward pass
    needed, here = 6 * parameter_count(model.config.parameters()), _memory()
    if here is not None and needed > here:
        raise ResourceError(
            f"the probe computes in float32 and needs about {format_bytes(needed)} of memory for this model; "
            f"this machine has {format_bytes(here)}. Use a smaller model of the same family."
        )
    return ""


def _memory() -> int | None:
    """Returns the bytes of memory of this machine, None where it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def probe_model(
    model: Pretrained,
    text: str | None = None,
    report: Callable[[str], None] = lambda _: None,
    weights: Mapping[str, Any] | None = None,
    device: Any = "cpu",
    is_quick: bool = False,
) -> Probe:
    """Returns the probe of a model on `text`, all of it, or on our own; `report` is called with the label of
    each alternative before it is read. `weights` are those of the model where they are held already; with
    `is_quick`, our text is read to its thousandth token."""
    if why := check_probe(model, text):
        raise UsageError(why)
    tokenizer = model.need_tokenizer()
    read = choose_text(tokenizer) if text is None else text
    most = QUICK_TOKENS if is_quick else MOST_TOKENS
    ids = tokenizer.encode(read)[: most if text is None else None]
    given = ModelReading(model.config, dict(model.weights) if weights is None else weights)
    comparison = TextComparison(given, ids, model.bos_ids, device)
    found = comparison.compare_all(report)
    further = None
    if not found.reason:
        report("bos")
        further = compare_beginnings(comparison.module, model, read)
    elif len(ids) >= LEAST_IDS:
        report("tokenizer")
        further = find_other_tokenizer(comparison.base, ids)
    if further:
        reason = "" if further.fit is ReadingVerdict.BETTER else found.reason
        found = replace(found, alternatives=(*found.alternatives, further), reason=reason)
    ordered = sorted(found.alternatives, key=lambda one: -_harm(one))
    found = replace(found, alternatives=tuple(ordered))
    if text is not None and found.better and found.better[0].key:
        found = _confirm(found, lambda: probe_model(model, None, report, weights, device, is_quick))
    return found


def _confirm(found: Probe, probe_own: Callable[[], Probe]) -> Probe:
    """Returns a probe by which another reading fits better only where it is not worse on our own text: on a
    strange text a wrong reading may be the better one."""
    best, own = found.better[0], probe_own()
    same = [one for one in own.alternatives if one.choice == best.choice]
    fits = {one.fit for one in same}
    is_open = any(one.label == best.label and one.fit is not ReadingVerdict.RIGHT for one in same)
    if own.reason or is_open or ReadingVerdict.BETTER in fits or ReadingVerdict.RIGHT not in fits:
        return found
    by = f"by {-best.difference.mean:.4f} nats a token"
    reason = f"{best.label} fits this text better {by}, and English prose of ours worse"
    kept = (
        replace(one, fit=ReadingVerdict.UNDECIDED) if one.fit is ReadingVerdict.BETTER else one
        for one in found.alternatives
    )
    return replace(found, alternatives=tuple(kept), reason=reason)


def _harm(one: OtherReading) -> float:
    return abs(one.difference.mean) if math.isfinite(one.difference.mean) else math.inf


class MeasuredReading(NamedTuple):
    """An alternative with its evidence, and what was read of it."""

    reading: ModelReading
    evidence: OtherReading
    read: ScoredPiece


class TextComparison:
    """A text under the given reading, beside which it is read under others."""

    def __init__(self, given: ModelReading, ids: Sequence[int], before: Sequence[int], device: Any) -> None:
        self.given, self.device = given, device
        is_large = parameter_count(given.config.parameters()) > LARGE
        self.dtype = torch.float32 if is_large else torch.float64
        self.module = make_module(given, {}, given, device, self.dtype)
        self.rows = cut_rows(ids, given.config.context_length, before)
        self.base = TextReader(self.module, self.rows, with_entropy=True)
        self.uniform = math.log(given.config.vocab_size)
        """The loss of a uniform guess, ln V."""
        self.middle = max((len(row.ids) for row in self.rows), default=0) // 2
        """The place in a window from which on tokens are far."""
        self.best: ScoredPiece | None = None
        """The scores of the alternative that fits best."""

    def read(self, other: ModelReading, with_entropy: bool = False) -> TextReader:
        """Returns a reader of the text under another reading."""
        held = dict(self.module.named_parameters())
        module = make_module(other, held, self.given, self.device, self.dtype)
        return TextReader(module, self.rows, with_entropy)

    def compare_all(self, report: Callable[[str], None]) -> Probe:
        """Returns the evidence on each choice. Where the model does not predict the text as given, an
        alternative is read on only where it does, and nothing is called right."""
        report("as given")
        base = self.base.read_all()
        loss, entropy = (float(some.mean()) if len(some) else math.nan for some in (base.nll, base.entropy))
        predicts = loss < PREDICTS * self.uniform
        found, not_applied = list[OtherReading](), list[str]()
        for choice in CONVENTIONS:
            others = choice.list_alternatives(self.given)
            if not others:
                not_applied.append(choice.name)
            measured = list[MeasuredReading]()
            for other in others:
                worse = [one.reading for one in measured if one.evidence.fit is ReadingVerdict.RIGHT]
                if any(choice.is_beyond(other, one, self.given) for one in worse):
                    continue
                report(f"{choice.name}: {choice.compare(self.given, other)}")
                measured.append(self.measure(choice, other, predicts=predicts))
            if best := find_best(measured):
                measured[measured.index(best)] = best = self._improve(choice, best)
                if self.best is None or best.read.nll.mean() < self.best.nll.mean():
                    self.best = best.read
            found += [one.evidence for one in measured]
        reason = ""
        if not predicts and not any(one.fit is ReadingVerdict.BETTER for one in found):
            reason = (
                f"it does not predict this text under any reading: a loss of {loss:.2f} nats a token, and "
                f"{self.uniform:.2f} for a uniform guess"
            )
        if len(base.nll) < 2:
            reason = f"{pluralize(len(base.nll), 'token')} to predict"
        precision = str(self.dtype).removeprefix("torch.")
        return Probe(loss, entropy, len(base.nll), tuple(found), tuple(not_applied), reason, precision)

    def measure(
        self,
        choice: Convention,
        other: ModelReading,
        base: ScoredPiece | None = None,
        predicts: bool = True,
    ) -> MeasuredReading:
        """Returns the evidence on one alternative beside the given reading, or beside the base; it is read as
        far as it takes to decide."""
        base = base or self.base.read_all()
        note, count, total = choice.compare(self.given, other), 0, self.base.count
        if self._attends_equally(other):
            none = measure_difference(np.zeros_like(base.nll))
            equal = OtherReading(choice.name, note, ReadingVerdict.UNDECIDED, none, key=choice.key)
            return MeasuredReading(other, equal, base)
        reader = self.read(other)
        while True:
            read = reader.read_to(count + 1)
            count = len(read.nll)
            fit, difference, part = judge(read, base, self.middle)
            if count >= total or fit is ReadingVerdict.RIGHT:
                break
            if is_futile(difference, total, choice.needs_distance) or self._is_beaten(read):
                break
            if not predicts and count >= PIECE and not read.nll.mean() < PREDICTS * self.uniform:
                break
        is_whole = count >= total and -difference.mean >= TOO_SMALL
        if fit is ReadingVerdict.BETTER and not (is_whole and self._is_of_own_kind(other, read)):
            fit = ReadingVerdict.UNDECIDED
        if fit is ReadingVerdict.RIGHT and not predicts:
            fit = ReadingVerdict.UNDECIDED
        return MeasuredReading(
            other, OtherReading(choice.name, note, fit, difference, part, choice.key), read
        )

    def _is_beaten(self, read: ScoredPiece) -> bool:
        """Returns whether an alternative is worse than one that was found to fit better."""
        if self.best is None or len(read.nll) < BLOCK * FEWEST_BLOCKS:
            return False
        return judge(read, self.best, self.middle)[0] is ReadingVerdict.RIGHT

    def _attends_equally(self, other: ModelReading) -> bool:
        """Returns whether only the mask differs, and not within the windows that are read."""
        mask, config = other.config.mask, replace(other.config, mask=self.given.config.mask)
        if mask == self.given.config.mask or config != self.given.config or other.value:
            return False
        keys = np.arange(2 * self.middle + 1)
        queries = keys[-COMPARED_QUERIES:]
        return np.array_equal(mask.compute_mask(queries, keys), config.mask.compute_mask(queries, keys))

    def _is_of_own_kind(self, other: ModelReading, read: ScoredPiece) -> bool:
        """Returns whether an alternative predicts this text about as well as it expects to, or much better
        than the given reading."""
        loss = float(read.nll.mean())
        if not loss < PREDICTS * self.uniform:
            return False
        if loss < (1 - MUCH) * float(self.base.read_all().nll.mean()):
            return True
        return loss <= FITS * float(self.read(other, with_entropy=True).read_all().entropy.mean())

    def _improve(self, choice: Convention, best: MeasuredReading) -> MeasuredReading:
        """Returns the best alternative of a choice, or a better one that is beyond it, as long as there is
        one: a base of 1,000,000 for 10,000 by steps of ten."""
        tried = [self.given.config, best.reading.config]
        for _ in range(MOST_STEPS):
            beyond = [one for one in choice.list_alternatives(best.reading) if one.config not in tried]
            tried += [one.config for one in beyond]
            better = find_best([self.measure(choice, one, base=best.read) for one in beyond])
            if better is None or -better.evidence.difference.mean < -STEP * best.evidence.difference.mean:
                break
            _, difference, part = judge(better.read, self.base.read_all(), self.middle)
            note = choice.compare(self.given, better.reading)
            evidence = replace(best.evidence, note=note, difference=difference, part=part)
            best = MeasuredReading(better.reading, evidence, better.read)
        return best


def find_best(some: Sequence[MeasuredReading]) -> MeasuredReading | None:
    """Returns the first of the alternatives that fit best, None where none fits better."""
    fitting = [one for one in some if one.evidence.fit is ReadingVerdict.BETTER]
    most = min((one.evidence.difference.mean for one in fitting), default=0.0)
    return next((one for one in fitting if one.evidence.difference.mean <= (1 - TIE) * most), None)


def judge(read: ScoredPiece, base: ScoredPiece, middle: int) -> tuple[ReadingVerdict, MeanDifference, str]:
    """Returns what the tokens that were read say, all together, the near and the far ones by themselves, with
    the difference that decided and of which tokens it is."""
    differences = read.nll - base.nll[: len(read.nll)]
    is_far = read.position >= middle
    whole = measure_difference(differences)
    if not np.isfinite(differences).all():
        return ReadingVerdict.RIGHT, whole, ""
    measured = [(whole, "")]
    if is_far.any():
        measured += [(measure_difference(differences[is_far]), "far tokens")]
        measured += [(measure_difference(differences[~is_far]), "near tokens")]
    decided = [one for one in measured if one[0].decides]
    signs = {difference.decides for difference, _ in decided}
    if len(signs) != 1:
        return ReadingVerdict.UNDECIDED, whole, ""
    return ReadingVerdict.RIGHT if signs == {1} else ReadingVerdict.BETTER, *decided[0]


def is_futile(difference: MeanDifference, total: int, needs_distance: bool) -> bool:
    """Returns whether the rest of a text would not decide either, as far as its beginning says."""
    if difference.blocks >= LEAST_BLOCKS and abs(difference.mean) + difference.limit < TOO_SMALL:
        return not needs_distance
    if difference.blocks < FEWEST_BLOCKS or (needs_distance and difference.tokens < 0.75 * total):
        return False
    if not difference.error:
        return not needs_distance
    errors = abs(difference.mean) / difference.error + 1
    return errors * math.sqrt(total / difference.tokens) < ERRORS
