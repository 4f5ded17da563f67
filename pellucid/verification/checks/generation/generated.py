"""Checks generation against scoring: each generated text is scored in one uncached pass of the specification,
and every log-probability that the engine gave for it must be the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import PellucidError
from pellucid.engine.transformer import Transformer
from pellucid.explanation.engines import applied_weights
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CHUNK
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.engine_schedule import EngineRuns, Generated
from pellucid.verification.checks.generation.sampling import CANNOT_GENERATE
from pellucid.verification.checks.generation.whole_model import judge_whole, limit_error, log_softmax
from pellucid.verification.verdict import Finding, Verdict

VOCABULARY = 1024
"""Tokens of a large model: the engine treats all alike."""


@dataclass
class Scorer:
    """Log-probabilities [T V] of the token after each of some tokens, by the specification, and how far an
    uncached run of the module, which is not what the engine runs, is from them."""

    module: Transformer
    error: float = 0.0
    """The largest error of the uncached run so far, in nats."""
    largest: float = 0.0
    """The largest logit of the specification so far."""
    specified: dict[tuple[int, ...], tuple[Array, float]] = field(default_factory=dict)
    """The values that the specification has computed so far, with its largest logit; types that hold the same
    weights may share it."""

    def __post_init__(self) -> None:
        self.weights = applied_weights(self.module)
        self.compared: set[tuple[int, ...]] = set()

    def __call__(self, ids: Sequence[int]) -> Array:
        key = tuple(ids)
        if key not in self.compared:
            self._compare(key)
        return self.specified[key][0]

    def _compare(self, ids: tuple[int, ...]) -> None:
        if ids not in self.specified:
            logits = forward(self.module.config, self.weights, [ids])["logits"][0]
            self.specified[ids] = log_softmax(logits), float(np.abs(logits).max())
        with torch.no_grad():
            got = self.module(torch.tensor([ids], device=self.module.device))[0].double().cpu().numpy()
        logprobs, largest = self.specified[ids]
        self.error = max(self.error, float(np.abs(log_softmax(got) - logprobs).max()))
        self.largest = max(self.largest, largest)
        self.compared.add(ids)

    @property
    def allowed(self) -> float:
        """Nats by which a log-probability may be off."""
        return limit_error(self.module.dtype, self.error, self.largest)


# ---- what a text was read as


def split_passes(
    prompt: Sequence[int], new: Sequence[int], sampling: Sampling, context: int, prefix: int
) -> Iterator[tuple[list[int], int]]:
    """Yields the tokens of each part of a text that is read from position 0 on, and how many of them were
    there before its first new token. Where the context is full, `crop` goes on with its last half, `roll`
    with the first `keep` tokens and the last half of the others."""
    keep = sampling.keep if sampling.context == "roll" else 0
    last = max((context - keep) // 2, prefix - keep, 1)

    def shorten(tokens: list[int]) -> list[int]:
        return tokens if len(tokens) <= context else [*tokens[:keep], *tokens[-last:]]

    tokens = shorten(list(prompt))
    start = len(tokens)
    for id in new:
        tokens = [*tokens, id]
        if len(tokens) > context:
            yield tokens, start
            tokens = shorten(tokens)
            start = len(tokens)
    if len(tokens) > start:
        yield tokens, start


def search_beams(score: Scorer, request: Request) -> list[float] | None:
    """Returns the scores of the best beams, Σ ln p / length^penalty, the best first; None where two totals
    are so close that rounding decides which one goes on."""
    sampling, new = request.sampling, request.sampling.max_new_tokens or 0
    running, finished = [((), 0.0)], list[float]()
    for length in range(1, new + 1):
        totals = np.stack([total + score([*request.prompt, *ids])[-1] for ids, total in running])
        order = np.argsort(-totals.ravel(), kind="stable")[: sampling.beams * 3 + 1]
        ranked = totals.ravel()[order]
        if (np.diff(ranked) > -1e-6).any():
            return None
        going: list[tuple[Any, float]] = []
        for rank, (place, total) in enumerate(zip(order.tolist(), ranked.tolist(), strict=True)):
            parent, id = divmod(place, totals.shape[1])
            if length == new or id in (sampling.stop_ids or ()):
                finished += [total / length**sampling.length_penalty] * (rank < sampling.beams)
            elif len(going) < sampling.beams:
                going.append(((*running[parent][0], id), total))
        running = going
    return sorted(finished, reverse=True)[: sampling.n]


# ---- the verdict on one request


@dataclass
class Judge:
    """Compares what the engine said of its texts with their scores; `used` is the largest error as a share of
    what is allowed."""

    score: Scorer
    prefix: int
    used: float = 0.0

    def find_bug(self, one: Generated) -> Finding | None:
        """Returns the first departure of a request's texts from their scores."""
        for text in one.texts:
            found = self._check_end(one, text) or self._check_text(one, text)
            if found:
                return found
        return self._check_beams(one) or self._check_prompt(one)

    def _check_end(self, one: Generated, text: Completion) -> Finding | None:
        """A text ends at its first stop token, which belongs to it, or has all of its tokens."""
        stops = set(one.request.sampling.stop_ids or ())
        places = [at for at, id in enumerate(text.ids) if id in stops]
        most = one.request.sampling.max_new_tokens
        is_stopped = text.finish == "stop" and places == [len(text.ids) - 1]
        if is_stopped or (text.finish == "length" and not places and len(text.ids) == most):
            return None
        message = (
            f"the text has {len(text.ids)} of {most} tokens and ended by {text.finish}; stop tokens are at "
            f"the places {places}"
        )
        return self._bug(one, f"{text.finish} after {len(text.ids)} tokens", f"{one.feature}.finish", message)

    def _check_text(self, one: Generated, text: Completion) -> Finding | None:
        request, place = one.request, 0
        if len(text.logprobs) != len(text.ids):
            message = f"{len(text.logprobs)} log-probabilities come with {len(text.ids)} tokens"
            return self._bug(one, message, f"generated[request={one.feature}]", message)
        passes = split_passes(request.prompt, text.ids, request.sampling, one.context_length, self.prefix)
        for tokens, start in passes:
            scores = self.score(tokens[:-1])
            for at in range(start, len(tokens)):
                row, id, got = scores[at - 1], tokens[at], text.logprobs[place]
                where = f"generated[request={one.feature},token={place}]"
                if found := self._compare(one, where, got, float(row[id]), id):
                    return found
                if not self._is_right(one, row, id, place):
                    message = f"token {id}, ln p = {row[id]:.6g}, is not the one that must follow"
                    return self._bug(one, f"token {id} for {row.argmax()}", where, message)
                place += 1
        return None

    def _is_right(self, one: Generated, row: Array, id: int, place: int) -> bool:
        """Returns whether a token may follow: a forced one, or for greedy decoding the most probable one."""
        sampling = one.request.sampling
        if place < len(sampling.forced_tokens):
            return id == sampling.forced_tokens[place]
        is_greedy = sampling.temperature == 0 and sampling.beams == 1
        return not is_greedy or bool(row.max() - row[id] <= 2 * self.score.allowed)

    def _check_beams(self, one: Generated) -> Finding | None:
        sampling = one.request.sampling
        if sampling.beams == 1:
            return None
        for text in one.texts:
            [(tokens, start)] = split_passes(one.request.prompt, text.ids, sampling, one.context_length, 0)
            rows = self.score(tokens[:-1])[start - 1 :]
            total = sum(float(row[id]) for row, id in zip(rows, text.ids, strict=True))
            wanted = total / len(text.ids) ** sampling.length_penalty
            where = f"{one.feature}.score[choice={text.choice}]"
            if found := self._compare(one, where, text.score or 0.0, wanted, None, len(text.ids)):
                return found
        if self.score.module.dtype != torch.float64:
            return None  # rounding may decide which beam goes on
        best = search_beams(self.score, one.request)
        for at, (text, score) in enumerate(zip(one.texts, best or (), strict=False)):
            where = f"{one.feature}.choices[{at}]"
            if found := self._compare(one, where, text.score or 0.0, score, None, len(text.ids)):
                return found
        return None

    def _check_prompt(self, one: Generated) -> Finding | None:
        prompt = one.request.prompt
        if not one.request.prompt_logprobs:
            return None
        if len(one.prompt_logprobs) != len(prompt) - 1:
            message = (
                f"{len(one.prompt_logprobs)} log-probabilities come with a prompt of {len(prompt)} tokens"
            )
            return self._bug(one, message, f"prompt_logprobs[request={one.feature}]", message)
        rows = self.score(prompt)
        for at, got in enumerate(one.prompt_logprobs, start=1):
            where = f"prompt_logprobs[request={one.feature},token={at}]"
            if found := self._compare(one, where, got, float(rows[at - 1][prompt[at]]), prompt[at]):
                return found
        return None

    def _compare(
        self, one: Generated, where: str, got: float, wanted: float, id: int | None, terms: int = 1
    ) -> Finding | None:
        error = abs(got - wanted) / terms
        if error <= self.score.allowed:  # not where one is NaN
            self.used = max(self.used, error / self.score.allowed)
            return None
        what = "the score is" if id is None else f"ln p of token {id} is"
        message = f"{what} {got:.8g}; one uncached pass gives {wanted:.8g}"
        return self._bug(one, f"{got:.6g} for {wanted:.6g}", where, message)

    def _bug(self, one: Generated, measured: str, where: str, message: str) -> Finding:
        dtype = dtype_name(self.score.module.dtype)
        length = len(one.request.prompt)
        text = f"{message}.\nIn {dtype}, after a prompt of {length} tokens with {one.request.sampling!r}."
        return Finding(Verdict.BUG, measured, where, text)


# ---- the check


def measure_generated(subject: Subject) -> Finding:
    """Runs a schedule of requests on the first blocks in float64 (not quickly of a large model), float32 and
    the model's own type, then a few tokens of the whole model."""
    config = subject.config
    if config.mask.bidirectional_prefix > config.context_length:
        return Finding(Verdict.SKIPPED, CANNOT_GENERATE)
    model = ReducedModel(subject, vocabulary=VOCABULARY, context=CHUNK + 12)
    own = getattr(torch, subject.model.dtype)
    measured, notes = [], []
    specified = dict[Any, Any]()
    exact = () if subject.is_quick and subject.is_large else (torch.float64,)
    for dtype in dict.fromkeys((*exact, torch.float32, own)):
        runs = EngineRuns(model, dtype)
        wide = specified if dtype in (torch.float64, torch.float32) else {}
        judge = Judge(Scorer(runs.module, specified=wide), runs.prefix)
        name = dtype_name(dtype)
        if not gives_finite_logits(runs.module):
            notes.append(f"its logits in {name} are not finite")
            continue
        if found := _judge_all(runs, judge):
            return found
        measured.append(f"{judge.used:.0%} of {judge.score.allowed:.1e} nats in {name}")
    found = judge_whole(subject)
    if found.verdict is Verdict.BUG:
        return found
    text = "; ".join([*measured, *notes, found.measured])
    return Finding(Verdict.NOISE if measured else Verdict.SKIPPED, text)


def _judge_all(runs: EngineRuns, judge: Judge) -> Finding | None:
    """Returns the first bug of a schedule. One that is not there when its request runs alone is a matter of
    what ran beside it, and says so."""
    prompt = runs.ids[: runs.lengths.one]
    order = np.argsort(-judge.score(prompt)[-1], kind="stable")
    try:
        found = list(runs.run_all(int(order[min(1, len(order) - 1)])))
        if runs.lengths.new > 1:
            found.insert(1, runs.run_stop(found[0].texts[0].ids[1]))
    except PellucidError as error:
        return Finding(Verdict.BUG, "a request failed", "generated", str(error))
    for one in found:  # all texts first, since each adds to the error that is allowed
        for text in one.texts:
            request = one.request
            for tokens, _ in split_passes(
                request.prompt, text.ids, request.sampling, one.context_length, judge.prefix
            ):
                judge.score(tokens[:-1])
    for one in found:
        if bug := judge.find_bug(one):
            is_shared = one.settings and not one.feature.startswith("reused")
            if is_shared and judge.find_bug(runs.run_alone(one)) is None:
                beside = f"{one.feature} beside other requests"
                return replace(bug, at=bug.at.replace(one.feature, beside, 1))
            return bug
    return None
