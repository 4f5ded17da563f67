"""The samplers and the draw of one token on a tape: from the logits, step by step, to its probability.

    append_chain(tape, "logits", position, state)
    tape["sampling.probability"]            # of the token that `choose` takes, sampling.id

`explain` takes these steps apart like any others.
"""

from typing import Any

import numpy as np

from pellucid.generation.samplers.chain import ChainState
from pellucid.generation.samplers.drawn_token import draw_uniform
from pellucid.parts.samplers import Sampler
from pellucid.reference.op import Ref
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape

ROOT = "sampling"
MEANINGS = {
    "scores": ("s", "scores after {}: −∞ where a token is removed"),
    "probs": ("p", "probabilities before {}: softmax of the scores that it is given"),
    "mass_before": ("m", "mass before each token: probability of those that {} keeps first"),
    "bound": ("b", "bound of {}: the least that is kept"),
    "entropy": ("H", "entropy of the probabilities before {}, in nats"),
    "typicality": ("τ", "typicality: −|surprisal − entropy|"),
    "allowed": ("allowed", "mask of {}: 1 where a token is allowed, else 0"),
    "seen": ("seen", "mask of {}: 1 where the text has a token, else 0"),
    "counts": ("n", "number of times that the new text has each token"),
    "bias": ("b", "bias of each token"),
}
"""Symbol and meaning of a sampler's values by the name of their step; {} is the kind of the sampler."""


def append_chain(tape: Tape, logits: Ref | str, position: int, state: ChainState) -> Ref:
    """Appends the samplers of a text and the choice of its next token, and returns the token's probability
    `sampling.probability` [1 1].

    `logits` [1 T V] are on the tape, by name or as a reference; the token is chosen after `position` on their
    axis t, and `state` is the one before that choice. The steps are `sampling.logits`, for each sampler
    `sampling.KIND.scores` and what that was computed from, then `sampling.probs` [1 1 V],
    `sampling.mass_before` and `sampling.id` [1 1].
    """
    given = tape.ref(logits) if isinstance(logits, str) else logits

    def step(name: str, operation: str, *inputs: Ref, **attrs: Any) -> Ref:
        return tape(f"{ROOT}.{name}", find_op(operation), *inputs, **attrs)

    scores = step("logits", "narrow", given, axis=1, start=position, length=1)
    tape.describe(scores, "b t v", "ℓ", "logits of the next token")
    for stage, sampler in state.chain.stages:
        inputs = sampler.inputs(state)
        if inputs is not None:
            scores = append_sampler(tape, f"{ROOT}.{stage.name}", sampler, scores, inputs)
    probs = step("probs", "softmax", scores)
    tape.describe(probs, "b t v", "p", "probabilities after every sampler: with which a token is drawn")
    if state.chain.is_greedy:
        id = step("id", "argmax", scores)
    else:
        before = step("mass_before", "mass_before", probs, scores)
        tape.describe(before, "b t v", "m", "probability of the tokens before it in rank")
        u = draw_uniform(state.chain.seed, state.choice, len(state.new))
        id = step("id", "draw", probs, before, u=u)
    tape.describe(id, "b t", "id", "chosen token")
    chosen = step("probability", "select", probs, id)
    return tape.describe(chosen, "b t", "p_id", "probability of the chosen token")


def append_sampler(tape: Tape, scope: str, sampler: Sampler, scores: Ref, inputs: dict[str, Any]) -> Ref:
    """Appends the steps of one sampler under `scope` and returns its scores."""

    def describe(ref: Ref, name: str) -> Ref:
        symbol, meaning = MEANINGS.get(name, (name, f"{name.replace('_', ' ')} of {{}}"))
        axes = ("b", "t", "v")[-len(ref.shape) :]
        letters = (
            "1" if axis == "v" and size == 1 else axis for axis, size in zip(axes, ref.shape, strict=True)
        )
        return tape.describe(ref, " ".join(letters), f"{symbol}_{sampler.kind}", meaning.format(sampler.kind))

    def step(name: str, operation: str, *values: Ref, **numbers: Any) -> Ref:
        return describe(tape(f"{scope}.{name}", find_op(operation), *values, **numbers), name)

    rows = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    refs = {name: describe(tape.constant(f"{scope}.{name}", row), name) for name, row in rows.items()}
    after: Ref = sampler.apply(step, scores, **(inputs | refs))
    return after
