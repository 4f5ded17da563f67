"""The tuned lens: an affine map for each state, fitted so that its lens predicts what the model does.

    h' = h + h A + b,    lens(h') = FinalNorm(h') W_U

A and b minimize the mean of KL(p_final ‖ p_lens) over the positions of a text (Belrose et al. 2023,
arXiv:2303.08112). The fit starts from A = 0, or from the ridge regression of the last state on this one,
whichever diverges least:

    A = (Hᵀ H + ridge · diag(Hᵀ H))⁻¹ Hᵀ (H_last − H),   H and H_last − H less their means

Then each step is Adam's, on the gradient over all positions; it is halved until the divergence falls, so that
it never rises. The last fifth of the positions is held out: the map that diverges least there is kept, and
the plain lens, A = 0, is one of them. A step costs several products with W_U for each state; where the
vocabulary is large, the regression alone is the default.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import FileError, UsageError
from pellucid.base.files import Kind, check_output, check_suffix, need, new_file, validating
from pellucid.config import ModelConfig
from pellucid.formats.safetensors_file import read_file
from pellucid.interpretability.lens import (
    Distribution,
    append_lens,
    compute_divergence,
    compute_probs,
    label_state,
    list_states,
    list_weights,
    read_logits,
)
from pellucid.interpretability.runner import Runner
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import neg_log_probs
from pellucid.reference.ops.softmax import logsumexp
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.report.items import View, ViewTable

FORMAT, VERSION = "pellucid-tuned-lens", "1"
HELD_OUT = 5
"""The last 1 / HELD_OUT of the positions is held out of the fit: neighbors in a text are too much alike."""
HALVINGS, GROWTH = 8, 1.2
"""How often a step is halved before the fit stops, and how the rate grows after one that was not."""
CHUNK = 1 << 22
"""Logits of one tape, about."""
MOST = 1 << 27
"""Final probabilities that a fit keeps, at most: positions times vocabulary."""
RIDGES = (0.01, 0.1, 1.0)
"""Strengths of the regression: the penalty of a channel relative to its own variance."""
LEAST = 1e-12
"""The least penalty of a channel, relative to the sum of all variances."""
STEPS, BUDGET = 50, 10**12
"""Steps of a fit by default, and the multiplications that all of them together may cost, about."""


@dataclass(frozen=True, eq=False)
class AffineMap:
    """h + h A + b, with A [C C] and b [C]."""

    weight: Array
    bias: Array

    def __call__(self, state: Array) -> Array:
        return np.asarray(state + state @ self.weight + self.bias)

    def move_towards(self, other: "AffineMap", share: float) -> "AffineMap":
        """Returns the map at this share of the way to another."""
        weight = self.weight + share * (other.weight - self.weight)
        return AffineMap(weight, self.bias + share * (other.bias - self.bias))


@dataclass(frozen=True, eq=False)
class TunedLens:
    """The map of each state, by the state's name."""

    maps: Mapping[str, AffineMap]

    def translate(self, name: str, state: Array) -> Array:
        """Returns the state [T C] as the lens reads it: a state without a map stays as it is."""
        return self.maps[name](state) if name in self.maps else state

    def write(self, path: Path, force: bool = False) -> None:
        """Writes a .safetensors file: NAME.weight and NAME.bias for each state."""
        from safetensors.numpy import save

        check_tuned_lens_output(path, force)
        tensors = {f"{name}.weight": np.ascontiguousarray(one.weight) for name, one in self.maps.items()}
        tensors |= {f"{name}.bias": np.ascontiguousarray(one.bias) for name, one in self.maps.items()}
        with new_file(path, TUNED_LENS, force) as file:
            file.write(save(tensors, {"format": FORMAT, "version": VERSION}))


@dataclass(frozen=True)
class StateFit:
    """The mean KL of one state's lens on the held-out positions, plain and tuned, and the steps taken."""

    name: str
    plain: float
    tuned: float
    steps: int


@dataclass(frozen=True, eq=False)
class TunedLensFit:
    """A tuned lens, and how it was fitted to how many positions."""

    lens: TunedLens
    states: tuple[StateFit, ...]
    fitted: int
    held_out: int


def fit_tuned_lens(
    runner: Runner,
    texts: Sequence[Sequence[int]],
    *,
    steps: int | None = None,
    lr: float = 0.01,
    states: Sequence[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TunedLensFit:
    """Returns the lens that is tuned on texts of token ids, by default for each state but the last.

    `steps` is by default 50, or what about 10¹² multiplications allow; 0 is the regression alone.
    """
    config = runner.config
    known = list_states(config)
    wanted = known[:-1] if states is None else list(states)
    if unknown := [name for name in wanted if name not in known[:-1]]:
        raise UsageError(f"{unknown[0]!r} is not a state that a lens can be tuned for; {known[0]!r} is one.")
    count = sum(map(len, texts))
    if count < HELD_OUT:
        raise UsageError(f"a tuned lens needs at least {HELD_OUT} tokens of text; got {count}.")
    if steps is None:
        steps = min(STEPS, BUDGET // (3 * count * config.d_model * config.vocab_size * max(len(wanted), 1)))
    if (kept := count if steps else count // HELD_OUT) * config.vocab_size > MOST:
        most = MOST // config.vocab_size * (count // kept)
        raise UsageError(f"{count:,} tokens of text are too many: at most {most:,} fit into memory.")
    recorded = [runner.run(ids, [*wanted, known[-1]]) for ids in texts if len(ids)]
    weights = {name: np.asarray(runner.weights[name], np.float64) for name in list_weights(config)}
    last = np.concatenate([seen[known[-1]][0] for seen in recorded])
    held_out = np.arange(count) >= count - count // HELD_OUT
    is_fitted = ~held_out
    # the regression alone needs the final distribution of the held-out positions only
    finals = [_distribute(config, weights, last[part]) for part in (is_fitted & (steps > 0), held_out)]
    objectives = []
    for name in wanted:
        state = np.concatenate([seen[name][0] for seen in recorded])
        fitted, checked = (
            LensObjective(config, weights, state[part], last[part], final)
            for part, final in zip((is_fitted, held_out), finals, strict=True)
        )
        objectives.append((fitted, checked))
    maps, fits, each = dict[str, AffineMap](), [], steps + len(RIDGES)
    for i, (name, (fitted, checked)) in enumerate(zip(wanted, objectives, strict=True)):
        walk = _descend(fitted, checked, steps, lr)
        plain = best = next(walk)
        for k, one in enumerate(walk, 1):
            best = min(best, one, key=lambda step: step.divergence)
            progress(i * each + k, len(wanted) * each)
        maps[name] = best.map
        fits.append(StateFit(name, plain.divergence, best.divergence, best.number))
    progress(len(wanted) * each, len(wanted) * each)
    return TunedLensFit(TunedLens(maps), tuple(fits), int(is_fitted.sum()), int(held_out.sum()))


@dataclass(frozen=True, eq=False)
class LensObjective:
    """The mean of KL(p_final ‖ p_lens) over the positions of one state.

    `state` and `last` are this state and the last one [N C], `final` is the model's ln p and p, in chunks.
    """

    config: ModelConfig
    weights: Mapping[str, Array]
    state: Array
    last: Array
    final: Sequence[Distribution]

    def measure(self, map: AffineMap) -> float:
        """Returns the mean divergence of a map."""
        total = 0.0
        for state, final in self._chunks():
            log_probs, _ = compute_probs(read_logits(self.config, self.weights, map(state)))
            total += float(compute_divergence(final, log_probs).sum())
        return total / len(self.state)

    def differentiate(self, map: AffineMap) -> tuple[float, AffineMap]:
        """Returns the mean divergence of a map, and its gradient: dA [C C] and db [C]."""
        total, weight, bias = 0.0, np.zeros_like(map.weight), np.zeros_like(map.bias)
        for tape, divergence in self._run(map):
            tape.backward(divergence)
            total += tape[divergence].item()
            weight, bias = weight + tape["d.tuned.weight"], bias + tape["d.tuned.bias"]
        return total, AffineMap(weight, bias)

    def regress(self, ridge: float) -> AffineMap:
        """Returns the ridge regression of the last state on this one."""
        mean = self.state.mean(0)
        centered, difference = self.state - mean, self.last - self.state
        gram = centered.T @ centered
        gram[np.diag_indices(len(gram))] *= 1 + ridge
        gram[np.diag_indices(len(gram))] += LEAST * (np.trace(gram) or 1.0)  # a channel that never changes
        weight = np.linalg.solve(gram, centered.T @ (difference - difference.mean(0)))
        return AffineMap(weight, difference.mean(0) - mean @ weight)

    def make_identity(self) -> AffineMap:
        """Returns the map of the plain lens: A = 0, b = 0."""
        width = self.state.shape[1]
        return AffineMap(np.zeros((width, width)), np.zeros(width))

    def _chunks(self) -> Iterator[tuple[Array, Distribution]]:
        return zip(_split(self.state, self.config), self.final, strict=True)

    def _run(self, map: AffineMap) -> Iterator[tuple[Tape, Ref]]:
        """Yields tapes with the divergence of some of the positions, divided by the number of all."""
        for state, (log_probs, probs) in self._chunks():
            tape = Tape()
            for name, value in self.weights.items():
                tape.constant(name, value)
            weight, bias = tape.parameter("tuned.weight", map.weight), tape.parameter("tuned.bias", map.bias)
            h = tape.constant("state", state[None])
            moved = tape("tuned.change", einsum, h, weight, bias, spec="btc,cd+d->btd")
            lens = append_lens(tape, self.config, tape("tuned.state", add, h, moved))
            nll = tape("tuned.neg_log_probs", neg_log_probs, lens, tape("tuned.lse", logsumexp, lens))
            excess = tape("tuned.excess", add, nll, tape.constant("final_log_probs", log_probs[None]))
            final, scale = tape.constant("final_probs", probs[None]), 1 / len(self.state)
            yield tape, tape("tuned.divergence", einsum, final, excess, spec="btv,btv->", scale=scale)


@dataclass(frozen=True, eq=False)
class _FitStep:
    """A map on the way, and its mean divergence on the held-out positions."""

    number: int
    map: AffineMap
    divergence: float


def _descend(fitted: LensObjective, checked: LensObjective, steps: int, lr: float) -> Iterator[_FitStep]:
    """Yields the plain lens, the regressions, and the map after each step, until none lowers the divergence
    of the fitted positions."""
    starts = [fitted.make_identity(), *map(fitted.regress, RIDGES)]
    for start in starts:
        yield _FitStep(0, start, checked.measure(start))
    if not steps:
        return
    here = min(starts, key=fitted.measure)
    state: dict[str, Array] = {}
    for k in range(1, steps + 1):
        divergence, grads = fitted.differentiate(here)
        moved, state = _take_adam_step(here, grads, k, lr, state)
        shares = (0.5**halving for halving in range(HALVINGS))
        nearer = ((share, here.move_towards(moved, share)) for share in shares)
        share, here = next((one for one in nearer if fitted.measure(one[1]) < divergence), (0.0, here))
        if not share:
            return
        lr *= share if share < 1 else GROWTH
        yield _FitStep(k, here, checked.measure(here))


def _take_adam_step(
    map: AffineMap, grads: AffineMap, k: int, lr: float, state: Mapping[str, Array]
) -> tuple[AffineMap, dict[str, Array]]:
    """Returns the map after one update of Adam, and the moments."""
    tape = Tape()
    for part in ("weight", "bias"):
        tape.parameter(part, getattr(map, part))
        tape.constant(f"d.{part}", getattr(grads, part))
    update(tape, "adam", k, lr=lr, state=state)
    moments = {name: value for name, value in tape.values.items() if name.endswith(f"@{k}")}
    return AffineMap(tape[f"weight@{k}"], tape[f"bias@{k}"]), moments


def _distribute(config: ModelConfig, weights: Mapping[str, Array], last: Array) -> list[Distribution]:
    """Returns the model's own distribution from the last state [N C], in chunks."""
    return [compute_probs(read_logits(config, weights, part)) for part in _split(last, config)]


def _split(rows: Array, config: ModelConfig) -> list[Array]:
    """Returns the rows in chunks whose logits fit one tape."""
    size = max(1, CHUNK // config.vocab_size)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


# ---- the view


def describe_fit(view: View, fit: TunedLensFit) -> View:
    """Returns the view of a lens with how it was fitted."""
    rows = [(label_state(one.name), one.plain, one.tuned, one.steps) for one in reversed(fit.states)]
    caption = f"mean KL on the last {fit.held_out:,} positions, held out; fitted on the first {fit.fitted:,}"
    table = ViewTable(caption, ["state", "plain", "tuned", "steps"], rows)
    states = [{"name": o.name, "plain": o.plain, "tuned": o.tuned, "steps": o.steps} for o in fit.states]
    data = {**view.data, "fit": {"fitted": fit.fitted, "held_out": fit.held_out, "states": states}}
    return replace(view, tables=[*view.tables, table], data=data)


# ---- the file


def _read_metadata(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def _why_not_a_tuned_lens(path: Path) -> str:
    is_one = path.is_file() and _read_metadata(path).get("format") == FORMAT
    return "" if is_one else f"its metadata do not say {json.dumps({'format': FORMAT})}"


TUNED_LENS = Kind("a tuned lens", _why_not_a_tuned_lens)


def check_tuned_lens_output(path: Path, force: bool = False) -> None:
    """Raises unless a tuned lens may be written there; call it before the work."""
    check_output(path, TUNED_LENS, force)
    check_suffix(path, ".safetensors", "a tuned lens is a .safetensors file")


def read_tuned_lens(path: Path, config: ModelConfig) -> TunedLens:
    """Returns the tuned lens of a file; raises a FileError where it is damaged or of another model."""
    tensors = read_file(path)
    metadata = _read_metadata(path)
    if metadata.get("format") != FORMAT:
        raise FileError(f"{path} is not a tuned lens: {_why_not_a_tuned_lens(path)}.")
    if metadata.get("version") != VERSION:
        raise FileError(
            f"{path} is a tuned lens of version {metadata.get('version')}; this version reads {VERSION}."
        )
    names, width = list_states(config)[:-1], config.d_model
    maps = {}
    with validating(path):
        need(bool(tensors), "it has no maps")
        for tensor in tensors:
            name, _, part = tensor.rpartition(".")
            need(
                name in names and part in ("weight", "bias"),
                f"{tensor!r} is not a map of a state of this model",
            )
        for name in dict.fromkeys(tensor.rpartition(".")[0] for tensor in tensors):
            read = {}
            for part, shape in (("weight", (width, width)), ("bias", (width,))):
                need(f"{name}.{part}" in tensors, f"{name}.{part} is missing")
                found = tensors[f"{name}.{part}"]
                need(found.shape == shape, f"{name}.{part} has the shape {found.shape}, not {shape}")
                read[part] = np.array(found.read(), np.float64)
                need(bool(np.isfinite(read[part]).all()), f"{name}.{part} is not finite")
            maps[name] = AffineMap(**read)
    return TunedLens(maps)
