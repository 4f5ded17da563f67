"""Updates as steps: each rule reads a parameter and its gradient and names the parameter X@k."""

import inspect
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pellucid.errors import TapeError, did_you_mean
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops import updates
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Tape

State = Mapping[str, Array]


def sgd(tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float) -> Ref:
    """w − η g."""
    return tape(f"{w.name}@{k}", updates.sgd, w, g, lr=lr)


def momentum(tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float, beta: float = 0.9) -> Ref:
    """Accumulating momentum: m ← β m + g; w − η m."""
    m = tape(f"{w.name}.m@{k}", updates.accumulate, _moment(tape, w, "m", k, state), g, beta=beta)
    return tape(f"{w.name}@{k}", updates.sgd, w, m, lr=lr)


def averaging_momentum(
    tape: Tape, w: Ref, g: Ref, k: int, state: State, *, lr: float, beta: float = 0.9
) -> Ref:
    """Averaging momentum: m ← β m + (1 − β) g; w − η m."""
    m = tape(f"{w.name}.m@{k}", updates.ema, _moment(tape, w, "m", k, state), g, beta=beta)
    return tape(f"{w.name}@{k}", updates.sgd, w, m, lr=lr)


def adamw(
    tape: Tape,
    w: Ref,
    g: Ref,
    k: int,
    state: State,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.01,
) -> Ref:
    """Both moments, their bias corrected, and decay of the weight itself (arXiv:1711.05101)."""
    beta1, beta2 = betas
    m = tape(f"{w.name}.m@{k}", updates.ema, _moment(tape, w, "m", k, state), g, beta=beta1)
    v = tape(f"{w.name}.v@{k}", updates.ema, _moment(tape, w, "v", k, state), g, beta=beta2, power=2)
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "decay": decay}
    return tape(f"{w.name}@{k}", updates.adamw, w, m, v, t=k, **settings)


RULES: dict[str, Callable[..., Ref]] = {
    rule.__name__: rule for rule in (sgd, momentum, averaging_momentum, adamw)
}


def update(
    tape: Tape,
    rule: str,
    k: int = 1,
    *,
    only: str = "*",
    clip: float | None = None,
    state: State | None = None,
    **settings: Any,
) -> list[Ref]:
    """Append update number k to every parameter whose name fits the pattern `only`.

    With `clip`, all gradients together are first shortened to that length where they are longer.
    """
    if rule not in RULES:
        raise TapeError(f"no update called {rule!r}; have {', '.join(RULES)}." + did_you_mean(rule, RULES))
    known = [p.name for p in inspect.signature(RULES[rule]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if unknown := sorted(set(settings) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise TapeError(f"{rule} has no setting {unknown[0]!r}; it has {', '.join(known)}.{hint}")
    if clip is not None and not clip > 0:
        raise TapeError(f"gradients cannot be clipped to the length {clip}; use a number above 0.")
    for key, value in settings.items():
        if not np.all(np.isfinite(value)):
            raise TapeError(f"{key}={value} is no number to train with.")
    with_gradient = [w for w in tape.parameters() if f"d.{w.name}" in tape]
    chosen = [w for w in with_gradient if fnmatchcase(w.name, only)]
    if not chosen:
        names = ", ".join(w.name for w in with_gradient)
        raise TapeError(f"no parameter with a gradient fits {only!r}; have {names}.")
    tape.phase = "upd"
    gradients = {w.name: tape.ref(f"d.{w.name}") for w in chosen}
    if clip is not None:
        gradients = _clipped(tape, gradients, clip)
    updated = [RULES[rule](tape, w, gradients[w.name], k, state or {}, **settings) for w in chosen]
    tape.phase = "fwd"
    return updated


def _clipped(tape: Tape, gradients: dict[str, Ref], limit: float) -> dict[str, Ref]:
    norm = tape("grad_norm", updates.global_norm, *gradients.values())
    factor = tape("clip", updates.clip_factor, norm, limit=limit)
    return {
        name: tape(f"d.{name}.clipped", einsum, g, factor, spec=f"{letters},->{letters}")
        for name, g in gradients.items()
        for letters in (LETTERS[: len(g.shape)],)
    }


def _moment(tape: Tape, w: Ref, which: str, k: int, state: State) -> Ref:
    """The moment before this update, nothing at first."""
    name = f"{w.name}.{which}@{k - 1}"
    return tape.constant(name, state.get(name, np.zeros(w.shape)))
