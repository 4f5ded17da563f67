"""Checks a model against `transformers`: its weights, its tables, and each step from its own inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from pellucid.base.errors import PellucidError, quote
from pellucid.formats.rope_layout import ROTATED, halves_to_pairs, pairs_to_halves
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, hold_weights
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.file_weights import describe_difference
from pellucid.verification.checks.outside.llamacpp_answers import TOKENS, LlamaCppAnswers, ask_llamacpp
from pellucid.verification.checks.outside.transformers_run import (
    UNEMBEDDING,
    TransformersModel,
    load_transformers,
    record_run,
    rotary_tables,
    their_weights,
)
from pellucid.verification.checks.outside.witnesses import (
    SAME_FILE,
    Departure,
    Witness,
    judge_departure,
    remember,
)
from pellucid.verification.judge_run import judge_run
from pellucid.verification.name_table import map_names
from pellucid.verification.run_report import RunReport
from pellucid.verification.verdict import Finding, Verdict

WORST = 1e-2
"""The nats by which a log-probability of the fast engine in float32 may be off, or four times as much as
theirs are, where that is more."""
ANGLE = 1e-5
"""The part by which an angle may differ: in float32 a frequency and its multiple are off by about 1e-6."""
UNLIKELY = -30.0
"""The log-probability below which a token of llama.cpp is not compared: it reports −3.4e38 for some."""
FAR = 64
"""How many positions of the whole context are compared, beside the first ones."""


@dataclass(frozen=True)
class TransformersComparison:
    """A run of transformers beside ours: the departure, if there is one, and the figures."""

    source: str
    departure: Departure | None
    measured: str

    @property
    def is_of_the_file(self) -> bool:
        return self.source == SAME_FILE


@remember
def compare_with_transformers(subject: Subject) -> TransformersComparison | str:
    """Returns the comparison, or the reason why there is none."""
    try:
        theirs = load_transformers(subject, subject.layers)
        length = max(TOKENS, subject.find_length(theirs.window))  # a window that we ignored shows beyond it
        ids = subject.make_ids(min(subject.config.context_length, length))
        recorded = record_run(theirs, ids)
    except ImportError:
        return "transformers is not installed: pip install transformers"
    except PellucidError as error:
        return str(error)
    except Exception as error:  # another library on an untrusted file
        return f"transformers cannot read this model: {quote(error)}"
    is_ours = theirs.config == subject.with_layers(subject.layers)  # their layout of RoPE may be another one
    tape = (
        hold_weights(subject.program_of([ids], subject.layers))
        if is_ours
        else forward(theirs.config, theirs.weights, [ids])
    )
    trace = subject.trace(tape, ids)
    departure, report = _compare_weights(theirs), RunReport(())
    if departure is None:
        try:
            values, _ = map_names(recorded, trace, theirs.table)
        except PellucidError as error:
            departure = Departure("config", str(error))
        else:
            report = judge_run(trace, values)
            if report.bugs:
                from pellucid.verification.diagnosis import explain_bug  # with the catalogue of mistakes

                report = explain_bug(report, trace, values, theirs.config)
            departure = _compare_angles(theirs, len(ids)) or _first_bug(report)
    logits = recorded["lm_head"].value
    measured = "" if departure else f"{report.summarize().measured}; "
    departure = departure or _compare_engine(subject, tape, ids, logits)
    measured += f"log-probabilities {_apart(tape['logits'], logits):.1e} apart at worst, {theirs.source}"
    blocks = f" and the first {subject.layers} blocks" if subject.is_large else ""
    dequantized = ", its weights dequantized" if subject.quantized else ""
    measured += f", of {len(ids)} tokens{blocks}{dequantized}"
    return TransformersComparison(theirs.source, departure, measured)


def measure_transformers(subject: Subject) -> Finding:
    """Compares; of a departure, asks who else departs."""
    found = compare_with_transformers(subject)
    if isinstance(found, str):
        return Finding(Verdict.SKIPPED, found)
    if found.departure is None:
        return Finding(Verdict.NOISE, found.measured)
    if found.departure.at.startswith("logits (ours"):
        return Finding(Verdict.BUG, found.measured, "logits", found.departure.message)
    is_authority = found.is_of_the_file and subject.model.pretrained.provenance.format == "huggingface"
    return judge_departure(
        "transformers", found.departure, is_authority, [_hear_llamacpp(subject, is_authority)]
    )


# ---- what departs


def _compare_weights(theirs: TransformersModel) -> Departure | None:
    """Returns the first weight that is not theirs, with what it is instead, where that is seen."""
    found = dict(their_weights(theirs))
    for name, weight in found.items():
        if weight is None:
            return Departure(name, f"{name}: transformers has no such weight, or one of another shape")
        if name not in theirs.weights and name != UNEMBEDDING:
            return Departure(name, f"{name}: transformers reads such a weight, and there is none here")
        ours = np.asarray(theirs.weights[name if name in theirs.weights else "embed.weight"])
        if difference := describe_difference(ours.astype(np.float32), weight):
            if name == UNEMBEDDING and name not in theirs.weights:
                difference = f"it is the embedding here, and another matrix there: {difference}"
            readings = [f"it fits if {reading}" for reading in _explain_weight(name, ours, found)]
            return Departure(name, "\n".join([f"{name}: {difference}", *readings]))
    return None


def _explain_weight(name: str, ours: Array, theirs: Mapping[str, Array | None]) -> Iterator[str]:
    """Yields the usual readings under which a weight of ours would be theirs."""
    own = theirs[name]
    assert own is not None
    if ours.ndim == 2 and ours.shape[0] == ours.shape[1] and np.array_equal(ours.T, own):
        yield "it is transposed"
    if ROTATED.fullmatch(name):
        width = _find_head_width(ours, own)
        if width:
            yield f"its rows are in the other layout of RoPE (heads of {width} channels)"
    for shift in (1, -1):
        if np.allclose(ours + shift, own, rtol=1e-6, atol=1e-7):
            yield f"the gain is read as {'1 + γ' if shift > 0 else 'γ, without the 1 that was added'}"
    for other, value in theirs.items():
        if other != name and value is not None and np.array_equal(ours, value):
            yield f"it is {other}, which is in its place"


def _find_head_width(ours: Array, theirs: Array) -> int:
    """Returns the width of a head with which one weight is the other in another layout of RoPE, or 0."""
    for width in (n for n in range(2, len(ours) + 1, 2) if len(ours) % n == 0):
        for reorder in (pairs_to_halves, halves_to_pairs):
            if width > 2 and np.array_equal(reorder(ours, width), theirs):
                return width
    return 0


def _compare_angles(theirs: TransformersModel, length: int) -> Departure | None:
    """Returns the departure of RoPE's angles, at the positions that are read and over the whole context."""
    context = theirs.config.context_length
    far = np.unique(np.linspace(0, context - 1, min(FAR, context)).astype(int))
    places = np.union1d(np.arange(min(length, context)), far)
    rotation, tables = theirs.config.positions.rotation(places, theirs.config.d_head), None
    if rotation is None or (tables := rotary_tables(theirs.model, places)) is None:
        return None
    angles = np.asarray(rotation.angles)
    error = np.maximum(np.abs(np.cos(angles) - tables[0]), np.abs(np.sin(angles) - tables[1]))
    is_other = error > ANGLE * (1 + np.abs(angles))
    if not is_other.any():
        return None
    t, pair = (int(i) for i in np.argwhere(is_other)[0])
    cosines = f"cos {np.cos(angles[t, pair]):.6g} here and {tables[0][t, pair]:.6g} there"
    ours, others = rotation.angles[1, pair] if len(places) > 1 else 0.0, 0.0
    if len(places) > 1 and places[1] == 1:
        others = float(np.arctan2(tables[1][1, pair], tables[0][1, pair]))
    message = f"angles at position {places[t]}, pair {pair}: {cosines}"
    if others:
        message += f"\nfrom one position to the next it rotates by {ours:.6g} here and by {others:.6g} there"
    return Departure("angles", f"{message}: another base, or another scaling of RoPE")


def _first_bug(report: RunReport) -> Departure | None:
    if not report.bugs:
        return None
    return Departure(report.bugs[0].place, str(report), report.bugs[0].used)


def _compare_engine(subject: Subject, tape: Tape, ids: list[int], theirs: Array) -> Departure | None:
    """Returns the departure of the fast engine in float32 from the specification, which agrees with them."""
    module = subject.module(torch.float32, subject.layers)
    with torch.no_grad():
        ours = module(torch.tensor([ids], device=module.device)).double().cpu().numpy()
    apart, allowed = _apart(tape["logits"], ours), max(WORST, 4 * _apart(tape["logits"], theirs))
    if apart <= allowed:  # NaN fails as well
        return None
    message = (
        f"each step of transformers follows, and the fast engine's log-probabilities are {apart:.1e} off"
    )
    return Departure("logits (ours)", message)


def _apart(ours: Array, theirs: Array) -> float:
    return float((log_softmax(ours) - log_softmax(theirs)).abs().max())


def log_softmax(logits: Array) -> torch.Tensor:
    return torch.log_softmax(torch.as_tensor(logits, dtype=torch.float64), -1)


# ---- who else departs


def _hear_llamacpp(subject: Subject, is_authority: bool) -> Witness:
    """Returns whether llama.cpp sides with us or with transformers, where the two differ."""
    answers = ask_llamacpp(subject)
    if isinstance(answers, str):
        return Witness("llama.cpp", None, f"cannot be asked: {answers}")
    if not answers.is_of_the_file and is_authority:
        return Witness("llama.cpp", None, "reads our export alone")
    theirs = load_transformers(subject, answers.layers)
    with torch.no_grad():
        others = log_softmax(theirs.model(torch.tensor([answers.read]), use_cache=False).logits[0].numpy())
    mine = forward(theirs.config, theirs.weights, [answers.read])["logits"][0]
    ours, others_apart = (distance(answers, table) for table in (log_softmax(mine), others))
    name = "llama.cpp" if answers.is_of_the_file else "llama.cpp (of our export)"
    if max(ours, others_apart) > 2 * min(ours, others_apart):
        return Witness(name, ours < others_apart)
    nearly = f"is {ours:.1e} nats from ours and {others_apart:.1e} from theirs, and cannot tell"
    return Witness(name, None, nearly)


def distance(answers: LlamaCppAnswers, logprobs: torch.Tensor) -> float:
    """Returns how far its log-probabilities of its most likely tokens are from a table [T V], on average."""
    apart = [
        abs(p - float(logprobs[t, id]))
        for t, best in enumerate(answers.predictions)
        for id, p in best
        if p > UNLIKELY
    ]
    return sum(apart) / max(len(apart), 1)
