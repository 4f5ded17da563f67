"""The logit lens: what the model would predict if it stopped after a layer.

    lens(X) = FinalNorm(X) W_U (+ b), soft-capped where the config has a cap

is computed for the residual stream before the first block, after each attention and after each block. It is
the model's own last step on another state, so the lens of the last state is the model's logits. Of each
distribution the most probable tokens, the probability and rank of the target, the entropy and the divergence
KL(p_final ‖ p_lens) = Σ_v p_final (ln p_final − ln p_lens) are kept, in nats.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.base.arguments import check_int
from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.interpretability.runner import PromptedModel, Values, check_position, check_tokens
from pellucid.interpretability.search import find_largest
from pellucid.reference.norms import normalize
from pellucid.reference.op import Ref
from pellucid.reference.tape import Tape
from pellucid.reference.transformer import compute_logits
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Grid
from pellucid.report.items import Entry, View, ViewTable

FORMULA = """lens(X) = FinalNorm(X) W_U (+ b), capped as the model's logits are
X: resid_pre of block 0, each resid_mid and resid_post
rank: how many tokens are more probable;  entropy = −Σ_v p ln p, in nats
KL(p_final ‖ p_lens) = Σ_v p_final (ln p_final − ln p_lens), in nats"""
CHUNK = 1 << 22
"""Logits that are in memory at once, about: the positions of a long prompt are read in chunks."""
COLUMNS = 16
"""Positions of a grid: the last ones of a long prompt."""

Ints = NDArray[np.int64]
Distribution = tuple[Array, Array]
"""ln p and p [T V]."""
Translate = Callable[[str, Array], Array]
"""Returns the state [T C] to read in place of the state of that name: the map of a tuned lens."""


@dataclass(frozen=True, eq=False)
class Lens:
    """What each state of the stream predicts at each position: S states, T positions.

    `targets` [T] are the tokens that follow in the prompt, and the model's own most probable token at the
    last position; at one position another can be asked for. `rank` 0 is the most probable token.
    """

    states: tuple[str, ...]
    """The name of each state."""
    top_ids: Ints
    """[S T k] the most probable tokens, the most probable first."""
    top_probs: Array
    """[S T k]"""
    targets: Ints
    target_probs: Array
    """[S T]"""
    target_ranks: Ints
    """[S T]"""
    tokens: tuple[int, ...]
    """The tokens that were asked for."""
    token_probs: Array
    """[S T n]"""
    entropy: Array
    """[S T] −Σ_v p ln p"""
    divergence: Array
    """[S T] KL(p_final ‖ p_lens)"""


def list_states(config: ModelConfig) -> list[str]:
    """Returns the names of the residual stream's states, from the embeddings to the last block."""
    states = ["blocks.0.resid_pre"]
    for layer in range(config.n_layer):
        states += [f"blocks.{layer}.resid_mid"] * (not config.mlp.is_none)
        states.append(f"blocks.{layer}.resid_post")
    return states


def label_state(name: str) -> str:
    """Returns how a state is shown.

    >>> [label_state(f"blocks.{name}") for name in ("0.resid_pre", "3.resid_mid", "3.resid_post")]
    ['embedding', 'L3 attention', 'L3']
    """
    _, layer, last = name.split(".")
    return {"resid_pre": "embedding", "resid_mid": f"L{layer} attention"}.get(last, f"L{layer}")


def append_lens(tape: Tape, config: ModelConfig, x: Ref) -> Ref:
    """Appends the model's last step, from a state [1 T C] to the logits [1 T V]; the weights that
    `list_weights` names are on the tape."""
    if config.placement.final:
        x = normalize(tape.scope("final_norm"), x, config.norm)
    return compute_logits(tape, config, x)


def list_weights(config: ModelConfig) -> list[str]:
    """Returns the names of the parameters that the lens reads."""
    names = (config.unembedding.weight, "unembed.bias", "final_norm.weight", "final_norm.bias")
    return [name for name in names if name in config.parameters()]


def read_logits(config: ModelConfig, weights: Mapping[str, Array], state: Array) -> Array:
    """Returns the lens's logits [T V] of a state [T C]."""
    tape = Tape()
    for name in list_weights(config):
        tape.parameter(name, weights[name])
    logits: Array = tape[append_lens(tape, config, tape.constant("state", state[None]))]
    return np.asarray(logits[0])


def compute_probs(logits: Array) -> Distribution:
    """Returns ln p and p [… V] of logits."""
    shifted = logits - logits.max(-1, keepdims=True)
    exps = np.exp(shifted)
    total = exps.sum(-1, keepdims=True)
    return shifted - np.log(total), exps / total


def compute_lens(
    values: Values,
    config: ModelConfig,
    weights: Mapping[str, Array],
    ids: Sequence[int],
    *,
    target: int | None = None,
    position: int = -1,
    tokens: Sequence[int] = (),
    top: int = 5,
    translate: Translate | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Lens:
    """Returns the lens of the states `list_states(config)` [1 T C]; `target` is the target of `position`,
    `translate` a tuned lens's map. At most about `CHUNK` logits are in memory at once."""
    check_tokens(config, (target, *tokens))
    states, top = list_states(config), min(check_int("top", top, least=1), config.vocab_size)
    kept = {name: weights[name] for name in list_weights(config)}
    length = values[states[0]].shape[1]
    place = check_position(position, length)
    if length != len(ids):
        raise UsageError(f"these values are of {length} tokens, the prompt has {len(ids)}.")
    size = max(1, CHUNK // config.vocab_size)
    chunks, done = [], 0
    for start in range(0, length, size):
        here = slice(start, min(start + size, length))
        final = compute_probs(read_logits(config, kept, values[states[-1]][0, here]))
        following = [*ids[1:], int(final[0][-1].argmax())]
        following[place] = following[place] if target is None else target
        targets = np.array(following[here])
        rows = []
        for group in _split(states[:-1], max(1, size // len(targets))):
            read = [
                translate(name, values[name][0, here]) if translate else values[name][0, here]
                for name in group
            ]
            logits = read_logits(config, kept, np.concatenate(read))
            parts = map(compute_probs, np.split(logits, len(group)))
            rows += [_reduce(part, final, targets, tokens, top) for part in parts]
            done += len(group) * len(targets)
            progress(done, length * (len(states) - 1))
        rows.append(_reduce(final, final, targets, tokens, top))
        chunks.append((targets, *map(np.stack, zip(*rows, strict=True))))
    targets, *found = zip(*chunks, strict=True)
    ids_, probs, target_probs, ranks, token_probs, entropy, kl = (np.concatenate(part, 1) for part in found)
    return Lens(
        tuple(states),
        ids_,
        probs,
        np.concatenate(targets),
        target_probs,
        ranks,
        tuple(tokens),
        token_probs,
        entropy,
        kl,
    )


def _split(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Returns groups of states, whose logits are one product with W_U: reading W_U takes most of the time."""
    return [names[start : start + size] for start in range(0, len(names), size)]


def _reduce(
    found: Distribution, final: Distribution, targets: Ints, tokens: Sequence[int], top: int
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """Returns what is kept of ln p and p [T V]: top ids and probs [T k], probability and rank of the targets
    [T], probabilities of the tokens [T n], entropy and divergence [T]. Of equal tokens the one with the
    smaller id comes first."""
    log_probs, probs = found
    best = np.stack([find_largest(row, top) for row in log_probs])
    of_target = np.take_along_axis(log_probs, targets[:, None], -1)
    return (
        best,
        np.take_along_axis(probs, best, -1),
        np.exp(of_target[:, 0]),
        (log_probs > of_target).sum(-1),
        probs[:, list(tokens)],
        _sum_products(probs, -log_probs),
        compute_divergence(final, log_probs),
    )


def compute_divergence(final: Distribution, log_probs: Array) -> Array:
    """Returns KL(p_final ‖ p) = Σ_v p_final (ln p_final − ln p) [T]."""
    return _sum_products(final[1], final[0] - log_probs)


def _sum_products(p: Array, x: Array) -> Array:
    """Returns Σ_v p x [T], where p = 0 counts as 0 whatever x is."""
    return np.asarray(np.where(p > 0, p * np.where(p > 0, x, 0.0), 0.0).sum(-1))


# ---- the view


def view_lens(
    prompted: PromptedModel,
    *,
    token: int | None = None,
    tokens: Sequence[int] = (),
    position: int = -1,
    top: int = 5,
    translate: Translate | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> View:
    """Returns what each state of the residual stream predicts; `position` is that of the table, `token` its
    target, by default the token that follows, and `tokens` are further ones that are shown."""
    runner, length = prompted.runner, len(prompted.ids)
    place = check_position(position, length)
    found = compute_lens(
        runner.run(prompted.ids, list_states(runner.config)),
        runner.config,
        runner.weights,
        prompted.ids,
        target=token,
        position=place,
        tokens=tokens,
        top=top,
        translate=translate,
        progress=progress,
    )
    target = prompted.show_token(int(found.targets[place]))
    name = "tuned lens" if translate else "logit lens"
    notes = [] if runner.config.placement.final else ["This model has no final norm, so the lens has none."]
    if length > COLUMNS:
        notes.append(f"The grid shows the last {COLUMNS} of {length} positions; the data have all.")
    return View(
        "lens",
        f"The {name} after “{prompted.labels[place]}” (t={place})",
        FORMULA + ("\ntuned: X is read as X + X A + b, with A and b of each state" if translate else ""),
        [_make_table(prompted, found, place, target)],
        [_make_grid(prompted, found), *_make_charts(found, place, target)],
        notes,
        _to_data(prompted, found),
        _summarize(prompted, found, place),
    )


def _summarize(prompted: PromptedModel, found: Lens, place: int) -> str:
    """Returns what the model predicts, and from which state on that is the most probable token."""
    final = int(found.top_ids[-1, place, 0])
    since = len(found.states) - 1
    while since and int(found.top_ids[since - 1, place, 0]) == final:
        since -= 1
    probability = float(found.top_probs[-1, place, 0])
    token = f"“{prompted.show_token(final)}” (p {probability:.2f})"
    return f"The model predicts {token}, its most probable token from {label_state(found.states[since])} on."


def _make_table(prompted: PromptedModel, found: Lens, place: int, target: str) -> ViewTable:
    extra = [f"p({prompted.show_token(id)})" for id in found.tokens]
    columns = ["state", "most probable", f"p({target})", "rank", *extra, "entropy", "KL"]
    rows: list[list[Entry]] = []
    for i, name in reversed(list(enumerate(found.states))):
        best = zip(found.top_ids[i, place], found.top_probs[i, place], strict=True)
        words = " ".join(f"{prompted.show_token(int(id))} {p:.2f}" for id, p in list(best)[:3])
        rows.append(
            [
                label_state(name),
                words,
                float(found.target_probs[i, place]),
                int(found.target_ranks[i, place]),
                *map(float, found.token_probs[i, place]),
                float(found.entropy[i, place]),
                float(found.divergence[i, place]),
            ]
        )
    return ViewTable(f"what each state predicts, the last first; the target is “{target}”", columns, rows)


def _make_grid(prompted: PromptedModel, found: Lens) -> Grid:
    """Returns the most probable token of each block, colored by its probability; the last block on top."""
    rows = [i for i, name in enumerate(found.states) if not name.endswith("resid_mid")][::-1]
    first = max(0, len(prompted.ids) - COLUMNS)
    texts = [[prompted.show_token(int(id)) for id in found.top_ids[i, first:, 0]] for i in rows]
    return Grid(
        "the most probable next token",
        found.top_probs[rows, first:, 0],
        [label_state(found.states[i]) for i in rows],
        prompted.labels[first:],
        "after",
        "token",
        texts=texts,
    )


def _make_charts(found: Lens, place: int, target: str) -> list[Chart]:
    """Returns the target's probability and the divergence, over the blocks that were passed; after the
    attention of a block, it is half passed."""
    n_layer = sum(name.endswith("resid_post") for name in found.states)
    x = np.linspace(0, n_layer, len(found.states))
    axis = Axis("blocks", 0, n_layer, is_whole=True)
    kl = found.divergence[:, place]
    most = float(kl[np.isfinite(kl)].max(initial=0.0)) or 1.0
    return [
        Chart(
            f"probability of “{target}”",
            axis,
            Axis("p", 0, 1),
            [Series(LegendKey(""), x, found.target_probs[:, place])],
        ),
        Chart(
            "KL(final ‖ lens)",
            axis,
            Axis("nats", 0, most),
            [Series(LegendKey(""), x, kl)],
        ),
    ]


def _to_data(prompted: PromptedModel, found: Lens) -> dict[str, object]:
    shown = {int(id): prompted.show_token(int(id)) for id in np.unique(found.top_ids)}
    shown |= {int(id): prompted.show_token(int(id)) for id in (*found.targets, *found.tokens)}
    return {
        "states": list(found.states),
        "tokens": prompted.labels,
        "top_ids": found.top_ids.tolist(),
        "top_probs": found.top_probs.tolist(),
        "targets": found.targets.tolist(),
        "target_probs": found.target_probs.tolist(),
        "target_ranks": found.target_ranks.tolist(),
        "asked_tokens": list(found.tokens),
        "asked_probs": found.token_probs.tolist(),
        "entropy": found.entropy.tolist(),
        "divergence": found.divergence.tolist(),
        "texts": shown,
    }
