"""Update rules as steps: each reads a parameter X and its gradient, and computes X@k."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.base.errors import TapeError, unknown
from pellucid.base.names import describe
from pellucid.base.patterns import select
from pellucid.parts import find
from pellucid.parts.optimizers import OptimizerConfig
from pellucid.reference.op import Array, Op, Ref
from pellucid.reference.ops import updates
from pellucid.reference.ops.arithmetic import LETTERS, lerp, scaled_sum
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.updates import divide_by_norm, frobenius_norm
from pellucid.reference.tape import Tape

State = Mapping[str, Array]


def sgd(tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float) -> Ref:
    """w − η g."""
    return tape(f"{w.name}@{k}", updates.sgd, w, g, lr=lr)


def momentum(tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float, beta: float) -> Ref:
    """Accumulating momentum: m ← β m + g; w − η m."""
    m = tape(f"{w.name}.m@{k}", updates.accumulate, _moment(tape, w, "m", k, state), g, beta=beta)
    return tape(f"{w.name}@{k}", updates.sgd, w, m, lr=lr)


def averaging_momentum(tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float, beta: float) -> Ref:
    """Averaging momentum: m ← β m + (1 − β) g; w − η m."""
    m = tape(f"{w.name}.m@{k}", updates.ema, _moment(tape, w, "m", k, state), g, beta=beta)
    return tape(f"{w.name}@{k}", updates.sgd, w, m, lr=lr)


def adam(
    tape: Tape,
    w: Ref,
    g: Ref,
    k: int,
    state: State,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    t: int | None = None,
) -> Ref:
    """Adam with bias correction (arXiv:1412.6980) for t updates: k, unless some were skipped."""
    beta1, beta2 = betas
    m, v = _moments(tape, w, g, k, state, betas)
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    return tape(f"{w.name}@{k}", updates.adam, w, m, v, t=k if t is None else t, **settings)


def adam_l2(
    tape: Tape,
    w: Ref,
    g: Ref,
    k: int,
    state: State,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    t: int | None = None,
) -> Ref:
    """Adam on the gradient of loss + λ/2 ‖w‖²: both moments see the weight."""
    penalized = tape(f"{w.name}.penalized@{k}", scaled_sum, g, w, alpha=weight_decay)
    _describe(
        tape,
        w,
        penalized,
        f"g@{k}",
        f"the gradient plus {weight_decay:g} times the weight, at update {k}, of ",
    )
    return adam(tape, w, penalized, k, state, lr=lr, betas=betas, eps=eps, t=t)


def adamw(
    tape: Tape,
    w: Ref,
    g: Ref,
    k: int,
    state: State,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    t: int | None = None,
) -> Ref:
    """Adam with bias correction and decoupled weight decay (arXiv:1711.05101)."""
    beta1, beta2 = betas
    m, v = _moments(tape, w, g, k, state, betas)
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "decay": weight_decay}
    return tape(f"{w.name}@{k}", updates.adamw, w, m, v, t=k if t is None else t, **settings)


def muon(
    tape: Tape,
    w: Ref,
    g: Ref,
    k: int,
    state: State,
    *,
    lr: float,
    beta: float,
    weight_decay: float,
    steps: int,
) -> Ref:
    """Nesterov momentum, orthogonalized by Newton-Schulz iterations (Jordan 2024)."""
    if len(w.shape) != 2:
        raise TapeError(
            f"muon updates matrices only; {w.name!r} has the shape {w.shape}. Choose others with `only`."
        )
    m = tape(f"{w.name}.m@{k}", updates.ema, _moment(tape, w, "m", k, state), g, beta=beta)
    nesterov = tape(f"{w.name}.nesterov@{k}", lerp, g, m, share=beta)
    _describe(tape, w, nesterov, f"u@{k}", f"the gradient blended with its momentum, at update {k}, of ")
    orthogonal = _orthogonalize(tape, w, nesterov, k, steps)
    rows, columns = w.shape
    scale = math.sqrt(max(1.0, rows / columns))
    return tape(f"{w.name}@{k}", updates.muon, w, orthogonal, lr=lr, scale=scale, decay=weight_decay)


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""a, b, c of Jordan 2024: a steep start, so that five steps are enough."""
SHORTEST = 1e-7
"""ε: a matrix of a smaller norm is divided by this."""


def _orthogonalize(tape: Tape, w: Ref, x: Ref, k: int, steps: int) -> Ref:
    """Iterates X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X; of a tall matrix, with the smaller product XᵀX."""
    a, b, c = NEWTON_SCHULZ
    wide = x.shape[0] <= x.shape[1]
    gram_spec, apply_spec = ("ik,jk->ij", "ij,jk->ik") if wide else ("ki,kj->ij", "kj,ji->ki")

    def compute(name: str, symbol: str, meaning: str, op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        value = tape(f"{w.name}.{name}@{k}", op, *inputs, **attrs)
        if name.startswith(("newton_schulz", "product")):
            return _describe(tape, w, value, symbol, f"{meaning}, at update {k}, of ")
        return tape.describe(
            value, "i j" if value.shape else "", symbol, f"{meaning}, at update {k}, of {w.name}"
        )

    size = compute("norm", "‖u‖", "Frobenius norm", frobenius_norm, x)
    x = compute(
        "newton_schulz_0", "X_0", "the matrix divided by its norm", divide_by_norm, x, size, eps=SHORTEST
    )
    for n in range(1, steps + 1):
        gram = compute(f"gram_{n}", f"A_{n}", "Gram matrix", einsum, x, x, spec=gram_spec)
        square = compute(
            f"square_{n}",
            f"cA_{n}²",
            "c times the square of the Gram matrix",
            einsum,
            gram,
            gram,
            spec="ik,kj->ij",
            scale=c,
        )
        polynomial = compute(f"polynomial_{n}", f"B_{n}", "b A + c A²", scaled_sum, square, gram, alpha=b)
        order = (polynomial, x) if wide else (x, polynomial)
        product = compute(
            f"product_{n}", f"BX_{n}", "the matrix times b A + c A²", einsum, *order, spec=apply_spec
        )
        x = compute(
            f"newton_schulz_{n}",
            f"X_{n}",
            f"after Newton-Schulz iteration {n}",
            scaled_sum,
            product,
            x,
            alpha=a,
        )
    return x


RULES: dict[str, Callable[..., Ref]] = {
    rule.__name__: rule for rule in (sgd, momentum, averaging_momentum, adam, adam_l2, adamw, muon)
}


def update(
    tape: Tape,
    rule: str | OptimizerConfig,
    k: int = 1,
    *,
    only: str | Sequence[str] = "*",
    freeze: str | Sequence[str] = (),
    clip: float | None = None,
    state: State | None = None,
    schedule: Callable[[int], float] | None = None,
    **settings: Any,
) -> list[Ref]:
    """Appends update number k of every parameter that matches a pattern of `only` and none of `freeze`.

    With `clip`, all gradients together are first scaled down to that norm where it is larger; with a
    schedule, the learning rate is multiplied by its factor for step k − 1. An `OptimizerConfig` says which
    parameters decay, and takes `lr` here in place of its own. A rule's name applies one rule to all
    parameters alike; settings that are not given are the defaults of its `OptimizerConfig`.
    """
    if isinstance(rule, str):
        settings = _complete(rule, settings)
    if clip is not None and not clip > 0:
        raise TapeError(f"gradients cannot be clipped to a norm of {clip}; use a number above 0.")
    chosen = _choose(tape, _to_list(only), _to_list(freeze))
    tape.phase = "upd"
    gradients = {w.name: tape.ref(f"d.{w.name}") for w in chosen}
    if clip is not None:
        gradients = _clip(tape, gradients, clip)
    factor, updated = schedule(k - 1) if schedule else 1.0, []
    for w in chosen:
        name, own = (rule, settings) if isinstance(rule, str) else rule.rule(w.name, w.shape, k - 1)
        if not isinstance(rule, str) and name == rule.kind:
            own = own | settings
        rate = {"lr": own["lr"] * factor} if "lr" in own else {}
        updated.append(RULES[name](tape, w, gradients[w.name], k, state or {}, **own | rate))
    tape.phase = "fwd"
    return updated


def _to_list(patterns: str | Sequence[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _choose(tape: Tape, only: list[str], freeze: list[str]) -> list[Ref]:
    """Returns the parameters with a gradient that `only` matches and `freeze` does not."""
    with_gradient = {w.name: w for w in tape.parameters() if f"d.{w.name}" in tape}
    names = list(with_gradient)
    if not names:
        raise TapeError("no parameter with a gradient: call `backward` first.")
    frozen = select(names, freeze, "freeze", TapeError)
    chosen = [with_gradient[name] for name in select(names, only, "only", TapeError) if name not in frozen]
    if not chosen:
        raise TapeError(f"freeze={', '.join(freeze)} leaves no parameter to update.")
    return chosen


def _complete(rule: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all settings of a rule: those given, and the defaults of its `OptimizerConfig`."""
    if rule not in RULES:
        raise TapeError(unknown("update rule", rule, RULES))
    known = [p.name for p in inspect.signature(RULES[rule]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for key in sorted(set(settings) - set(known)):
        raise TapeError(unknown(f"a setting of {rule}", key, known))
    for key, value in settings.items():
        if value is not None and not np.all(np.isfinite(value)):
            raise TapeError(f"{key}={value} is not finite.")
    config = find("optimizers", rule)()
    assert isinstance(config, OptimizerConfig)
    _, defaults = config.rule("blocks.0.weight", (1, 1), 0)  # those of a matrix that decays
    return defaults | dict(settings)


def _clip(tape: Tape, gradients: dict[str, Ref], limit: float) -> dict[str, Ref]:
    norm = tape("grad_norm", updates.global_norm, *gradients.values())
    factor = tape("clip", updates.clip_factor, norm, limit=limit)
    return {
        name: tape(f"d.{name}.clipped", einsum, g, factor, spec=f"{letters},->{letters}")
        for name, g in gradients.items()
        for letters in (LETTERS[: len(g.shape)],)
    }


def _moments(tape: Tape, w: Ref, g: Ref, k: int, state: State, betas: tuple[float, float]) -> tuple[Ref, Ref]:
    """Returns Adam's two moments: running means of the gradient and of its square."""
    m = tape(f"{w.name}.m@{k}", updates.ema, _moment(tape, w, "m", k, state), g, beta=betas[0])
    v = tape(f"{w.name}.v@{k}", updates.ema, _moment(tape, w, "v", k, state), g, beta=betas[1], power=2)
    return m, v


def _moment(tape: Tape, w: Ref, which: str, k: int, state: State) -> Ref:
    """Returns the moment before this update; before the first, zeros."""
    name = f"{w.name}.{which}@{k - 1}"
    return tape.constant(name, state.get(name, np.zeros(w.shape)))


def _describe(tape: Tape, w: Ref, made: Ref, symbol: str, meaning: str) -> Ref:
    """Gives a value a glossary entry like the weight's own, where that has one."""
    of = describe(w.name, tape.about)
    if of:
        tape.about[made.name] = replace(
            of, name=made.name, symbol=symbol, meaning=meaning + of.term, engines="reference", invariant=""
        )
    return made
