"""Checks the draw of tokens: frequencies against the specification's probabilities, and each draw by itself.

A draw is replayed from the engine's own logits and its own u, by the definitions in
`definitions.py`, so that a wrong sampler has a name; the engine runs as `generate` runs it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from pellucid.base.errors import PellucidError
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import Feed
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import LAYERS, ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.definitions import (
    TextSoFar,
    compute_probabilities,
    define_scores,
    explains_draw,
)
from pellucid.verification.checks.generation.statistics import (
    DEVIATIONS,
    find_largest_gap,
    fit_frequencies,
    measure_correlation,
)
from pellucid.verification.verdict import Finding, Verdict

PROMPT = 6
NEW = 4
"""Tokens of a text: three of them may be forced, so that a penalty counts them."""
CHOICES = 24
"""Texts of each replayed case."""
VOCABULARY = 8192
"""Tokens of a large model that are drawn from: more than the engine sorts whole."""
COUNTED, MOST = 1024, 64
"""Tokens that are counted at each temperature, and how many a request may ask for."""
LARGEST_BIAS = 1e5
"""Logits that are further apart than any bias that may be given are not brought together."""
SEEDS, SEEDED = 5, 12
"""Seeds whose random numbers are compared, and the texts of each."""
CANNOT_GENERATE = "its mask is not causal, so it cannot generate"
NOT_FINITE = "its logits are not finite"
NO_ROOM = "its context has no room for a new token"


@dataclass(frozen=True)
class SamplingCase:
    """One way of drawing, named by the setting that it adds."""

    name: str
    sampling: Sampling
    has_ledger: bool = False


@dataclass(frozen=True)
class Drawn:
    """The texts of a request, and the logits before each token: `rows[step]` [texts that go on, V]."""

    case: SamplingCase
    prompt: list[int]
    texts: list[Completion]
    rows: list[Array]

    def tokens(self) -> Iterator[tuple[int, int, Array]]:
        """Yields the choice and the place of every token, and its logits [V]."""
        for step, rows in enumerate(self.rows):
            going = [text.choice for text in self.texts if len(text.ids) > step]
            for at, choice in enumerate(going):
                yield choice, step, rows[at if len(rows) > 1 else 0]


def count_first(config: ModelConfig) -> int:
    """Returns the fewest tokens of a prompt: a bidirectional prefix is read in one call."""
    return max(1, int(config.mask.bidirectional_prefix))


def explain_no_room(config: ModelConfig) -> str:
    """Returns why no token can be generated after a prompt, "" where one can."""
    if config.mask.bidirectional_prefix > config.context_length:
        return CANNOT_GENERATE
    return NO_ROOM if config.context_length - count_first(config) < 1 else ""


def measure_draws(subject: Subject) -> Finding:
    """Replays the draws of every sampler in the model's own type and in float32, then counts many tokens
    against the specification's probabilities."""
    config = subject.config
    if why := explain_no_room(config):
        return Finding(Verdict.SKIPPED, why)
    first = count_first(config)
    new = min(NEW, config.context_length - first)
    layers = 1 if subject.is_large else LAYERS
    model = ReducedModel(subject, layers=layers, vocabulary=VOCABULARY, context=max(PROMPT, first) + NEW)
    prompt = model.ids(max(first, min(PROMPT, config.context_length - new)))
    replayed = 0
    for dtype in dict.fromkeys((getattr(torch, subject.model.dtype), torch.float32)):
        module = model.module(dtype)
        if not gives_finite_logits(module):
            continue
        draws = Draws(module, prompt, new)
        try:
            found = draws.find_bad_number() or draws.find_bad_draw()
        except PellucidError as error:
            return Finding(Verdict.BUG, "a request failed", "sampling", str(error))
        if found:
            return found
        replayed += draws.replayed
    if not replayed:
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    return count_draws(model, prompt, replayed)


def record_logits(engine: Engine) -> list[Array]:
    """Returns a list to which the logits of each forward pass of an engine are added from here on."""
    read, rows = engine.slots.forward, list[Array]()

    def record(feeds: Sequence[Feed]) -> torch.Tensor:
        logits = read(feeds)
        rows.append(logits.double().cpu().numpy())
        return logits

    engine.slots.forward = record  # type: ignore[method-assign]
    return rows


class Draws:
    """Draws of one engine: the same prompt under every setting."""

    def __init__(self, module: Transformer, prompt: list[int], new: int) -> None:
        self.module, self.prompt, self.new = module, prompt, new
        self.replayed = 0

    def draw(self, case: SamplingCase) -> Drawn:
        """Runs a request in an engine of its own and records the logits of each of its forward passes."""
        engine = Engine(self.module, slots=case.sampling.n, capacity=len(self.prompt) + self.new)
        rows = record_logits(engine)
        texts = engine.add(Request(tuple(self.prompt), case.sampling, ledger=case.has_ledger)).result()
        return Drawn(case, self.prompt, texts, rows)

    # ---- the random numbers

    def find_bad_number(self) -> Finding | None:
        """Returns the finding where the u of seeds, choices and places are not uniform or not independent."""
        sampling = Sampling(temperature=1.0, n=SEEDED, max_new_tokens=self.new, stop_ids=())
        numbers = np.array(
            [
                [
                    [entry.u for entry in text.entries]
                    for text in self.draw(
                        SamplingCase("u", replace(sampling, seed=seed), has_ledger=True)
                    ).texts
                ]
                for seed in range(SEEDS)
            ]
        )
        return find_dependence(numbers)

    # ---- each draw from its own logits

    def find_bad_draw(self) -> Finding | None:
        """Returns the finding at the first draw, the simplest settings first, that the definitions do not
        give for its logits and its u."""
        plain = self.draw(SamplingCase("draw", self._settings(temperature=1.0)))
        for case in self.make_cases(plain.rows[0][0]):
            if found := self._judge(self.draw(case)):
                return found
        return None

    def _judge(self, drawn: Drawn) -> Finding | None:
        case, sampling = drawn.case, drawn.case.sampling
        for choice, place, logits in drawn.tokens():
            ids = drawn.texts[choice].ids
            u = None if sampling.temperature == 0 else self.numbers[choice][place]
            text = TextSoFar(drawn.prompt, ids[:place], sampling.stop_ids or ())
            self.replayed += 1
            if not explains_draw(logits, sampling, text, ids[place], u):
                return _describe_bad_draw(case, logits, text, ids[place], u)
        return None

    @cached_property
    def numbers(self) -> list[list[float]]:
        """The u of each token [choice][place], from the ledger of a request with the seed of every case."""
        texts = self.draw(SamplingCase("u", self._settings(temperature=1.0), has_ledger=True)).texts
        return [[float(entry.u or 0.0) for entry in text.entries] for text in texts]

    def _settings(self, **more: Any) -> Sampling:
        usual: dict[str, Any] = {"n": CHOICES, "max_new_tokens": self.new, "stop_ids": (), "seed": 11}
        return Sampling(**(usual | more))

    def make_cases(self, logits: Array) -> Iterator[SamplingCase]:
        """Yields ways of drawing after the logits [V] of the prompt, with bounds that lie between two tokens;
        each is spread over some tokens, however sharp or flat the model's own distribution is."""
        order = np.argsort(-logits, kind="stable")
        temperature = choose_temperature(logits[order])
        warm: dict[str, Any] = {"temperature": temperature}
        yield SamplingCase("greedy", self._settings(temperature=0.0, n=1))
        yield SamplingCase("draw", self._settings(temperature=1.0))
        yield SamplingCase("temperature", self._settings(**warm))
        probs = compute_probabilities((logits - logits.max()) / temperature)[order]
        few = choose_count(logits[order])
        below, reached = probs[: few - 1].sum(), probs[:few].sum()
        yield SamplingCase("top_k", self._settings(**warm, top_k=few))
        yield SamplingCase("top_p", self._settings(**warm, top_p=float((below + reached) / 2)))
        if few < len(order) and probs[few - 1] > 0:
            share = float(np.sqrt(probs[few - 1] * max(probs[few], 1e-300)) / probs[0])
            yield SamplingCase("min_p", self._settings(**warm, min_p=min(share, 1.0)))
        yield SamplingCase("typical_p", self._settings(**warm, typical_p=0.5))
        kept = warm | {"top_k": min(8, len(order))}
        raised = {id: float(logits.max() - logits[id]) for id in set(self.prompt)}
        if max(raised.values()) > LARGEST_BIAS:
            return
        yield SamplingCase("logit_bias", self._settings(**kept, logit_bias=raised))
        penalized = self._settings(**kept, logit_bias=raised, repetition_penalty=3.0)
        yield SamplingCase("repetition_penalty", penalized)
        # raised so far that they would be drawn if they were not removed
        first, third = int(order[0]), int(order[min(2, len(order) - 1)])
        likely = {first: 20 * temperature, third: 20 * temperature}
        if len(order) > 2 and 20 * temperature <= LARGEST_BIAS:
            banned = self._settings(**kept, logit_bias=likely, banned_tokens=(first, third))
            yield SamplingCase("banned_tokens", banned)
            ends: dict[str, Any] = {"stop_ids": (first,), "min_new_tokens": min(2, self.new)}
            yield SamplingCase("min_new_tokens", self._settings(**kept, logit_bias=likely, **ends))
        yield from self._make_counting_cases(kept, temperature)

    def _make_counting_cases(self, kept: dict[str, Any], temperature: float) -> Iterator[SamplingCase]:
        """Yields cases whose last token follows forced ones: the first token of the prompt twice, the last
        one once, raised by what the penalty takes from them."""
        forced = (self.prompt[0], self.prompt[0], self.prompt[-1])[: self.new - 1]
        if not forced:
            return
        plain = self._settings(**kept, forced_tokens=forced)
        logits = self.draw(SamplingCase("forced_tokens", replace(plain, n=1))).rows[-1][0]
        yield SamplingCase("forced_tokens", plain)
        penalty = min(1.5 * temperature, 100.0)
        for name, count in (("presence_penalty", 1), ("frequency_penalty", 2)):
            raised = {
                id: float(logits.max() - logits[id] + penalty * (count if id == forced[0] else 1))
                for id in set(forced)
            }
            if max(raised.values()) <= LARGEST_BIAS:
                settings: dict[str, Any] = {"logit_bias": raised, name: penalty}
                yield SamplingCase(name, replace(plain, **settings))


def find_dependence(numbers: Array) -> Finding | None:
    """Returns the finding where numbers u [seed, choice, place] are not all different, not uniform, or
    correlated between neighbors."""
    neighbors = [
        (name, np.delete(numbers, -1, axis), np.delete(numbers, 0, axis))
        for axis, name in enumerate(("seed", "choice", "place"))
        if numbers.shape[axis] > 1
    ]
    for name, one, other in neighbors:
        if (one == other).any():
            message = f"two tokens whose {name} differs are drawn with the same number u"
            twice = f"u = {one[one == other][0]:.6f} twice"
            return Finding(Verdict.BUG, twice, f"sampling.u[{name}]", message)
    if len(np.unique(numbers)) < numbers.size:
        message = "two tokens of different choices and places are drawn with the same number u"
        return Finding(Verdict.BUG, "a number u twice", "sampling.u", message)
    if (gap := find_largest_gap(numbers)) > 1:
        message = f"{numbers.size} numbers u are not uniform on [0, 1): {gap:.1f} times the bound"
        return Finding(Verdict.BUG, f"{gap:.1f} of the bound", "sampling.u", message)
    for name, one, other in neighbors:
        if abs(far := measure_correlation(one, other)) > DEVIATIONS:
            message = f"the numbers u of neighbors in {name} are correlated"
            return Finding(Verdict.BUG, f"{far:.1f} standard deviations", f"sampling.u[{name}]", message)
    return None


def choose_temperature(ordered: Array) -> float:
    """Returns a temperature other than 1 at which the eighth of the logits [V], the largest first, has a
    probability of about a fifth of the first one's."""
    spread = float(ordered[0] - ordered[min(7, len(ordered) - 1)])
    found = float(np.clip(spread / 1.5, 1e-3, 1e3)) or 2.0
    return 2 * found if 0.6 < found < 1.5 else found


def choose_count(ordered: Array) -> int:
    """Returns how many of the logits [V], the largest first, lie before the widest gap among the first."""
    gaps = ordered[1 : min(8, len(ordered) - 1)] - ordered[2 : min(8, len(ordered) - 1) + 1]
    return 2 + int(gaps.argmax()) if len(gaps) else len(ordered)


def _describe_bad_draw(
    case: SamplingCase, logits: Array, text: TextSoFar, id: int, u: float | None
) -> Finding:
    scores = define_scores(logits, case.sampling, text)
    order = np.argsort(-scores, kind="stable")
    probs = compute_probabilities(scores)[order]
    place = 0 if u is None else min(int(np.searchsorted(np.cumsum(probs), u, side="right")), len(order) - 1)
    rank = int(np.nonzero(order == id)[0][0])
    mass = float(probs[:rank].sum())
    message = (
        f"after {len(text.new)} new tokens, {case.sampling!r} gives token {id}, which has "
        f"p = {probs[rank]:.6g} and the cumulative probability from {mass:.6g}; "
        + (
            f"the largest score is that of token {order[0]}"
            if u is None
            else f"u = {u:.6g} is that of token {order[place]}, p = {probs[place]:.6g}"
        )
    )
    return Finding(Verdict.BUG, f"token {id} for {order[place]}", f"sampling.{case.name}", message)


# ---- frequencies


def count_draws(model: ReducedModel, prompt: list[int], replayed: int) -> Finding:
    """Counts tokens that are drawn in float64, where the engine's logits are the specification's."""
    logits = forward(model.config, model.weights, [prompt])["logits"][0, -1]
    module = model.module(torch.float64)
    engine = Engine(module, slots=MOST, capacity=len(prompt) + 1)
    own, used, shown = compute_probabilities(logits), 0.0, 0.0
    warmth = choose_temperature(np.sort(logits)[::-1])
    for temperature in (1.0, warmth):
        with np.errstate(divide="ignore"):
            powered = np.log(own) / temperature if temperature < 1 else (logits - logits.max()) / temperature
        wanted = compute_probabilities(powered)
        usual: dict[str, Any] = {"temperature": temperature, "n": MOST, "max_new_tokens": 1, "stop_ids": ()}
        handles = [
            engine.add(Request(tuple(prompt), Sampling(**usual, seed=seed)), streams=False)
            for seed in range(100, 100 + COUNTED // MOST)
        ]
        drawn = np.array([text.ids[0] for handle in handles for text in handle.result()])
        fit = fit_frequencies(drawn, wanted)
        if fit.used > 1:
            message = (
                f"of {len(drawn):,} tokens at temperature {temperature:.4g}, {fit.observed} are in a cell of "
                f"{len(fit.cell)} tokens (the first is {fit.cell[0]}) in which the specification's "
                f"probabilities expect {fit.expected:.1f}"
            )
            at = "sampling.draw" if temperature == 1 else "sampling.temperature"
            return Finding(Verdict.BUG, f"G = {fit.statistic:.0f} of {fit.bound:.0f}", at, message)
        used, shown = max(used, fit.used), max(shown, 0.5 * np.sqrt(fit.bound / len(drawn)))
    limit = 1 - 0.01 ** (1 / CHOICES / NEW)
    return Finding(
        Verdict.EQUAL,
        f"{replayed:,} draws replayed (a cumulative probability off by {limit:.1%} would show); "
        f"{2 * COUNTED:,} counted, {used:.0%} of the bound (p off by {shown:.1%} would show)",
    )
