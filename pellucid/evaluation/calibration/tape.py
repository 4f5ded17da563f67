"""A calibration as steps of the specification, so that `explain` takes its numbers apart.

The test part, axis n, before scaling and after it (names that begin with `scaled.`):

    confidence, correct → bins.index → bins.count, bins.confidence, bins.accuracy → bins.gap → ece

and the same for bins of equal mass (`mass_bins`) and the k most probable tokens (`top5_bins`). The fitting
part, axis i, for each iteration k of Newton's method:

    fit.expected_logit, fit.target_logit → d.inverse_temperature; fit.logit_variance → curvature
    inverse_temperature@1 = inverse_temperature − η d.inverse_temperature / curvature

Where the vocabulary is small, the logits themselves are on the tape, and every confidence is computed from
them; of a large one the numbers of each prediction are inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.calibration.predictions import Predictions
from pellucid.evaluation.calibration.scores import Bins, CalibrationScores
from pellucid.evaluation.calibration.temperature import TemperatureFit, TemperatureStep
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Op, Ref
from pellucid.reference.ops.arithmetic import power, subtract
from pellucid.reference.ops.binning import absolute, bin_index, bin_sum
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import cross_entropy, neg_log_probs
from pellucid.reference.ops.normalization import safe_divide
from pellucid.reference.ops.sampling import argmax, scaled_max, select
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.reference.ops.updates import newton
from pellucid.reference.tape import Tape

Array = NDArray[np.float64]
Event = tuple[Ref, Ref]
"""How probable an event was for each prediction [n], and whether it occurred [n]."""

PREDICTIONS = {
    "logits": ("n v", "z", "logits"),
    "targets": ("n", "y", "targets: the tokens that follow"),
    "onehot": ("n v", "o", "one-hot targets: 1 at the target, else 0"),
    "probs": ("n v", "p", "probabilities"),
    "predicted": ("n", "ŷ", "predicted token: the most probable one"),
    "confidence": ("n", "conf", "confidence: the probability of the predicted token"),
    "correct": ("n", "correct", "correct: 1 where the predicted token is the target, else 0"),
    "lse": ("n", "lse", "log-sum-exp of the logits"),
    "token_nll": ("n", "nll", "negative log-likelihood of the target"),
    "errors": ("n v", "e", "errors: the probabilities less the one-hot target"),
    "token_brier": ("n", "b", "Brier score of one prediction: the sum of its squared errors"),
    "top": ("n v", "in", "membership: 1 for the k most probable tokens, else 0"),
    "top_mass": ("n", "mass", "the sum of the k largest probabilities"),
    "top_correct": ("n", "correct", "1 where the target is one of the k most probable tokens, else 0"),
    "counted": ("n", "1", "each prediction counts once"),
    "nll": ("", "NLL", "negative log-likelihood: mean over the predictions"),
    "brier": ("", "Brier", "Brier score: mean over the predictions"),
}
BINS = {
    "edges": ("e", "edge", "the edges of the bins"),
    "index": ("n", "bin", "the bin of each prediction, by its confidence"),
    "count": ("m", "count", "the number of predictions in the bin"),
    "confidence_sum": ("m", "sum_conf", "the sum of the confidences of the bin"),
    "correct_sum": ("m", "sum_correct", "the number of right predictions in the bin"),
    "confidence": ("m", "conf_B", "the mean confidence of the bin"),
    "accuracy": ("m", "acc_B", "the accuracy of the bin"),
    "gap": ("m", "gap", "gap: accuracy − confidence; negative where the model is overconfident"),
    "gap_size": ("m", "|gap|", "the magnitude of the gap"),
    "weight": ("m", "w", "the share of all predictions that the bin has"),
    "mce": ("1", "MCE", "maximum calibration error: the largest magnitude of a gap"),
    "ece": ("", "ECE", "expected calibration error: the mean magnitude of the gap over the predictions"),
}
FIT = {
    "inverse_temperature": ("", "β", "inverse temperature: β = 1 / T"),
    "temperature": ("", "T", "fitted temperature: T = 1 / β"),
    "fit.logits": ("i v", "z", "logits of the fitting part"),
    "fit.targets": ("i", "y", "targets of the fitting part"),
    "fit.target_logit": ("i", "z_y", "logit of the target"),
    "fit.scaled_logits": ("i v", "s", "logits times β"),
    "fit.lse": ("i", "lse", "log-sum-exp of the scaled logits: ln Σ_v e^(β z_v)"),
    "fit.probs": ("i v", "p", "probabilities at β"),
    "fit.expected_logit": ("i", "z̄", "expected logit: Σ_v p_v z_v"),
    "fit.deviation": ("i v", "δ", "deviation of each logit from the expected one"),
    "fit.logit_variance": ("i", "var", "variance of the logit under p"),
    "fit.scaled_target": ("i", "s_y", "logit of the target times β"),
    "fit.token_nll": ("i", "nll", "negative log-likelihood of the target"),
    "fit.nll": ("", "NLL", "negative log-likelihood of the fitting part"),
    "fit.logit_error": ("i", "g", "derivative of one nll: the expected logit less that of the target"),
    "d.inverse_temperature": ("", "dβ", "derivative of the NLL with respect to β: the mean of z̄ − z_y"),
    "curvature": ("", "d²β", "second derivative of the NLL with respect to β: the mean variance"),
    "d.temperature": ("", "dT", "derivative of the NLL with respect to T: −β² times that to β"),
}
"""Axes, symbol and meaning of every value."""


@dataclass(frozen=True)
class PartRecord:
    """The targets of one part, and what is needed to compute its scores once more, step by step."""

    targets: NDArray[np.int64]
    labels: Sequence[str]
    """The token of each target, with its document and position."""
    logits: Array | None
    """[N V], of a small vocabulary."""


def make_trace(
    model: str,
    test: PartRecord,
    before: tuple[Predictions, CalibrationScores],
    after: tuple[Predictions, CalibrationScores] | None = None,
    fitted: tuple[PartRecord, TemperatureFit] | None = None,
    vocabulary: Sequence[str] = (),
) -> Trace:
    """Returns the trace of a calibration; `after` and `fitted` where a temperature was fitted."""
    tape = Tape()
    beta = None if fitted is None else _fit(_Steps(tape), *fitted)
    _score(_Steps(tape), test, *before)
    if after is not None and beta is not None:
        _score(_Steps(tape, "scaled."), test, *after, beta)
    labels = {"n": list(test.labels)}
    labels |= {axis: _name_ranges(bins) for axis, bins in (("m", before[1].bins), ("q", before[1].mass_bins))}
    labels |= {"i": list(fitted[0].labels)} if fitted is not None else {}
    labels |= {"v": list(vocabulary)} if vocabulary else {}
    run = {"model": model, "path": "reference", "dtype": "float64", "what": "calibration"}
    return Trace(tape, run, labels)


def _name_ranges(bins: Bins) -> list[str]:
    return [f"{low:.3g}–{high:.3g}" for low, high in zip(bins.edges[:-1], bins.edges[1:], strict=True)]


class _Steps:
    """A tape, under a prefix, whose values are described by a row of the tables above."""

    def __init__(self, tape: Tape, prefix: str = "") -> None:
        self.tape, self.prefix = tape, prefix

    def __call__(self, name: str, about: tuple[str, str, str], op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        return self.tape.describe(self.tape(f"{self.prefix}{name}", op, *inputs, **attrs), *about)

    def constant(self, name: str, about: tuple[str, str, str], value: Any) -> Ref:
        return self.tape.describe(self.tape.constant(f"{self.prefix}{name}", value), *about)

    def constant_of_both(self, name: str, about: tuple[str, str, str], value: Any) -> Ref:
        """Returns an input that is the same before and after scaling."""
        if name in self.tape:
            return self.tape.ref(name)
        return self.tape.describe(self.tape.constant(name, value), *about)


# ---- the scores of the test part


def _score(
    t: _Steps,
    part: PartRecord,
    predictions: Predictions,
    scores: CalibrationScores,
    beta: Ref | None = None,
) -> None:
    if part.logits is None:
        events = _read(t, predictions)
    else:
        events = _predict(t, part.targets, part.logits, beta, list(predictions.top_mass))
    for name in ("nll", "brier"):
        each = t.tape.ref(f"{t.prefix}token_{name}")
        t(name, PREDICTIONS[name], einsum, each, spec="n->", scale=1 / len(predictions))
    t.tape.alias(f"{t.prefix}ece", _bin(t, "bins", "m", scores.bins, *events[1]))
    _bin(t, "mass_bins", "q", scores.mass_bins, *events[1])
    for k in events:
        if k > 1:
            _bin(t, f"top{k}_bins", "m", scores.top_bins[k], *events[k])


def _predict(
    t: _Steps, ids: NDArray[np.int64], given: Array, beta: Ref | None, tops: Sequence[int]
) -> dict[int, Event]:
    """Computes each prediction from its logits; returns the event of each k."""
    logits = t.constant_of_both("logits", PREDICTIONS["logits"], given)
    targets = t.constant_of_both("targets", PREDICTIONS["targets"], ids)
    onehot = t.constant_of_both("onehot", PREDICTIONS["onehot"], np.eye(given.shape[-1])[ids])
    if beta is not None:
        about = ("n v", "s", "logits times β, which is division by the temperature")
        logits = t("logits", about, einsum, logits, beta, spec="nv,->nv")
    probs = t("probs", PREDICTIONS["probs"], softmax, logits)
    predicted = t("predicted", PREDICTIONS["predicted"], argmax, logits)
    confidence = t("confidence", PREDICTIONS["confidence"], select, probs, predicted)
    events = {1: (confidence, t("correct", PREDICTIONS["correct"], select, onehot, predicted))}
    lse = t("lse", PREDICTIONS["lse"], logsumexp, logits)
    t("token_nll", PREDICTIONS["token_nll"], cross_entropy, logits, lse, targets)
    errors = t("errors", PREDICTIONS["errors"], subtract, probs, onehot)
    along = {"spec": "nv,nv->n"}
    t("token_brier", PREDICTIONS["token_brier"], einsum, errors, errors, **along)
    order = np.argsort(-given, axis=-1, kind="stable")
    for k in (k for k in tops if k > 1):
        is_in = np.zeros(given.shape)
        np.put_along_axis(is_in, order[:, :k], 1.0, axis=-1)
        inside = t.constant_of_both(f"top{k}", _with_k("top", k), is_in)
        mass = t(f"top{k}_mass", _with_k("top_mass", k), einsum, probs, inside, **along)
        events[k] = mass, t(f"top{k}_correct", _with_k("top_correct", k), einsum, onehot, inside, **along)
    return events


def _read(t: _Steps, predictions: Predictions) -> dict[int, Event]:
    """Takes each prediction as it was measured: the vocabulary is too large for the tape."""
    t.constant("token_nll", PREDICTIONS["token_nll"], predictions.nll)
    t.constant("token_brier", PREDICTIONS["token_brier"], predictions.brier)
    events = {}
    for k, mass in predictions.top_mass.items():
        is_in = predictions.is_in_top(k).astype(float)
        if k == 1:
            confidence = t.constant("confidence", PREDICTIONS["confidence"], mass)
            events[k] = confidence, t.constant("correct", PREDICTIONS["correct"], is_in)
        else:
            largest = t.constant(f"top{k}_mass", _with_k("top_mass", k), mass)
            events[k] = largest, t.constant(f"top{k}_correct", _with_k("top_correct", k), is_in)
    return events


def _with_k(name: str, k: int) -> tuple[str, str, str]:
    axes, symbol, meaning = PREDICTIONS[name]
    return axes, f"{symbol}_{k}", meaning.replace(" k ", f" {k} ")


def _bin(t: _Steps, name: str, axis: str, bins: Bins, confidence: Ref, correct: Ref) -> Ref:
    """Adds the bins of an event; returns their ECE."""

    def add(leaf: str, op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        axes, symbol, meaning = BINS[leaf]
        return t(f"{name}.{leaf}", (axes.replace("m", axis), symbol, meaning), op, *inputs, **attrs)

    size, total = len(bins.counts), confidence.shape[0]
    counted = t.constant_of_both("counted", PREDICTIONS["counted"], np.ones(total))
    edges = t.constant(f"{name}.edges", BINS["edges"], bins.edges)
    index = add("index", bin_index, confidence, edges)
    count = add("count", bin_sum, counted, index, bins=size)
    confidence_sum = add("confidence_sum", bin_sum, confidence, index, bins=size)
    correct_sum = add("correct_sum", bin_sum, correct, index, bins=size)
    mean = add("confidence", safe_divide, confidence_sum, count)
    accuracy = add("accuracy", safe_divide, correct_sum, count)
    gap_size = add("gap_size", absolute, add("gap", subtract, accuracy, mean))
    weight = add("weight", einsum, count, spec="m->m", scale=1 / total)
    add("mce", scaled_max, gap_size, share=1.0)
    return add("ece", einsum, weight, gap_size, spec="m,m->")


# ---- the temperature, fitted on the other part


def _fit(t: _Steps, part: PartRecord, fit: TemperatureFit) -> Ref:
    """Adds the iterations of Newton's method and the fitted temperature; returns the last β."""
    beta = t.tape.describe(t.tape.parameter("inverse_temperature", 1.0), *FIT["inverse_temperature"])
    logits = None
    if part.logits is None:
        target = t.constant("fit.target_logit", FIT["fit.target_logit"], fit.steps[0].target_logit)
    else:
        logits = t.constant("fit.logits", FIT["fit.logits"], part.logits)
        targets = t.constant("fit.targets", FIT["fit.targets"], part.targets)
        target = t("fit.target_logit", FIT["fit.target_logit"], select, logits, targets)
    for k, step in enumerate(fit.steps):
        gradient, curvature = _derive(t, f"@{k}" if k else "", step, logits, target, beta)
        if k + 1 < len(fit.steps):
            about = ("", f"β@{k + 1}", f"inverse temperature after Newton step {k + 1}")
            beta = t(f"inverse_temperature@{k + 1}", about, newton, beta, gradient, curvature, lr=step.size)
    t("temperature", FIT["temperature"], power, beta, exponent=-1)
    return beta


def _derive(
    t: _Steps, at: str, step: TemperatureStep, logits: Ref | None, target: Ref, beta: Ref
) -> tuple[Ref, Ref]:
    """Adds the NLL at β; returns its first and second derivative."""

    def add(name: str, op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        return t(f"{name}{at}", FIT[name], op, *inputs, **attrs)

    if logits is None:
        measured = (
            ("fit.lse", step.lse),
            ("fit.expected_logit", step.expected_logit),
            ("fit.logit_variance", step.logit_variance),
        )
        lse, expected, variance = (t.constant(f"{name}{at}", FIT[name], value) for name, value in measured)
    else:
        scaled = add("fit.scaled_logits", einsum, logits, beta, spec="iv,->iv")
        lse, probs = add("fit.lse", logsumexp, scaled), add("fit.probs", softmax, scaled)
        expected = add("fit.expected_logit", einsum, probs, logits, spec="iv,iv->i")
        deviation = add("fit.deviation", neg_log_probs, logits, expected)
        variance = add("fit.logit_variance", einsum, probs, deviation, deviation, spec="iv,iv,iv->i")
    mean = {"spec": "i->", "scale": 1 / target.shape[0]}
    nll = add("fit.token_nll", subtract, lse, add("fit.scaled_target", einsum, target, beta, spec="i,->i"))
    add("fit.nll", einsum, nll, **mean)
    gradient = add(
        "d.inverse_temperature", einsum, add("fit.logit_error", subtract, expected, target), **mean
    )
    curvature = add("curvature", einsum, variance, **mean)
    add("d.temperature", einsum, beta, beta, gradient, spec=",,->", scale=-1.0)
    return gradient, curvature
