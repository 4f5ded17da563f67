"""Direct logit attribution: what the embedding, each head, each MLP and each bias adds to one logit.

    logit[t, v] = Σ_i X_i[t] · g_i,     g = W_U[v], taken back through the norms with their recorded 1/σ

The sum is exact: nothing is left over. What a component does to later heads and MLPs is not its own part, but
theirs. `attribution_steps.py` has the steps, which `trace_attribution` returns behind the whole forward pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.arguments import check_int
from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.interpretability.attention import has_pattern
from pellucid.interpretability.attribution_steps import (
    HEADS,
    MLPS,
    SCOPE,
    SUM,
    append_attribution,
    find_logits_name,
    list_values,
    list_weights,
)
from pellucid.interpretability.runner import PromptedModel, Values, check_position, check_tokens
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.report.diagram import Bars, Grid
from pellucid.report.figure import Plot
from pellucid.report.items import View, ViewTable

FORMULA = """logit = Σ_i a_i,  a_i = X_i[t] · g_i
X_i: embedded, position_rows, each head's attn.head_out, each mlp_out, each bias
g = W_U[v] (less that of another token), taken back through each norm: g ← r (γ ⊙ g), LayerNorm: less its mean
a head by key: a_s = pattern[t,s] v[s] · (W_O g)"""

MANY_HEADS = 16
"""Heads from which on the numbers of a grid do not stand in its cells."""


@dataclass(frozen=True)
class Contribution:
    """What one component adds to the logit; `head` is the number of a head, else None."""

    name: str
    value: float
    head: int | None = None

    @property
    def layer(self) -> int | None:
        """The layer that it belongs to, None for the embeddings, the final norm and the unembedding."""
        return int(self.name.split(".")[1]) if self.name.startswith("blocks.") else None

    @property
    def label(self) -> str:
        """A short name: L3 head 2, L3 MLP, or the value's own name."""
        if self.head is not None:
            return f"L{self.layer} head {self.head}"
        return f"L{self.layer} MLP" if self.name.endswith(".mlp_out") else self.name


@dataclass(frozen=True, eq=False)
class Attribution:
    """A logit, or the difference of two, as a sum of contributions in the order of the computation.

    `heads` [L H], `mlps` [L] and `sources` [L H S] (what each head adds from each key; None where the
    attention has no pattern) are the same numbers as arrays. `logit_name` is "unembedded" where the logits
    have a soft cap: then the sum is the logit before the cap.
    """

    token: int
    against: int | None
    position: int
    logit_name: str
    logit: float
    total: float
    contributions: tuple[Contribution, ...]
    heads: Array
    mlps: Array
    sources: Array | None

    @property
    def remainder(self) -> float:
        """The recorded logit less the sum: the rounding of the two computations."""
        return self.logit - self.total

    def largest(self, count: int) -> list[Contribution]:
        """Returns the contributions of the largest magnitude, the largest first."""
        return sorted(self.contributions, key=lambda part: -abs(part.value))[:count]


def compute_attribution(
    values: Values,
    config: ModelConfig,
    weights: Mapping[str, Array],
    *,
    token: int,
    against: int | None = None,
    position: int = -1,
) -> Attribution:
    """Returns the attribution of logit[position, token], less that of the token `against`, from the values
    that `list_values(config)` names, of one row."""
    tape = Tape()
    for name, value in values.items():
        tape.constant(name, value)
    for name in list_weights(config):
        tape.parameter(name, weights[name])
    return _attribute(tape, config, token, against, position)


def trace_attribution(
    prompted: PromptedModel, *, token: int | None = None, against: int | None = None, position: int = -1
) -> Trace:
    """Returns the forward pass of the specification on the prompt, by head, followed by the steps of the
    attribution, so that `explain` takes `attribution.heads[l=3,h=2]` apart to the last product.

    By default the token is the most probable one.
    """
    runner = prompted.runner
    weights = {name: runner.weights[name] for name in runner.config.parameters()}
    tape = forward(runner.config, weights, [list(prompted.ids)], by_head=True)
    if token is None:
        token = _find_most_probable(tape[find_logits_name(runner.config)], position, against)
    _attribute(tape, runner.config, token, against, position)
    labels = prompted.labels
    run = {
        "model": prompted.name,
        "tokens": labels,
        "ids": [list(prompted.ids)],
        "targets": None,
        "dtype": "float64",
        "path": "reference",
    }
    vocabulary = [prompted.show_token(id) for id in range(runner.config.vocab_size)]
    return Trace(tape, run, {"t": labels, "s": labels, "v": vocabulary})


def _attribute(
    tape: Tape, config: ModelConfig, token: int, against: int | None, position: int
) -> Attribution:
    """Appends the steps and returns what they compute."""
    logit_name = find_logits_name(config)
    logits = tape[logit_name]
    position = check_position(position, logits.shape[1])
    if len(logits) != 1:
        raise UsageError(f"an attribution is of one prompt; these values have {len(logits)} rows.")
    check_tokens(config, (token, against))
    if token == against:
        raise UsageError(f"the logit of token {token} less its own is 0: give another token as `against`.")
    row = logits[0, position]
    logit = float(row[token]) - (0.0 if against is None else float(row[against]))
    contributions = list[Contribution]()
    for name in append_attribution(tape, config, token, against, position):
        part = tape[f"{SCOPE}.{name}"]
        if part.ndim == 2:
            contributions += [Contribution(name, float(value), head) for head, value in enumerate(part[0])]
        else:
            contributions.append(Contribution(name, part.item()))
    if not np.isfinite([logit, *(part.value for part in contributions)]).all():
        raise UsageError(
            f"the logit of token {token} is {logit:g} and has no finite parts: a weight or a value of this "
            "model is NaN, or too large."
        )
    return Attribution(
        token,
        against,
        position,
        logit_name,
        logit,
        tape[SUM].item(),
        tuple(contributions),
        tape[HEADS],
        tape[MLPS] if MLPS in tape else np.zeros(0),
        _read_sources(tape, config, logits.shape[1]) if has_pattern(config) else None,
    )


def _read_sources(tape: Tape, config: ModelConfig, length: int) -> Array:
    """Returns what each head adds from each key [L H S]; 0 where a layer adds nothing to the stream."""
    nothing = np.zeros((config.n_head, length))
    names = (f"{SCOPE}.blocks.{layer}.attn.sources" for layer in range(config.n_layer))
    return np.stack([tape.values.get(name, nothing) for name in names])


def _find_most_probable(logits: Array, position: int, against: int | None) -> int:
    """Returns the most probable token other than `against`; a soft cap keeps the order of the logits."""
    row = logits[0, check_position(position, logits.shape[1])].copy()
    if against is not None and 0 <= against < len(row) > 1:
        row[against] = -np.inf
    return int(row.argmax())


# ---- the view


def view_attribution(
    prompted: PromptedModel,
    *,
    token: int | None = None,
    against: int | None = None,
    position: int = -1,
    top: int = 12,
) -> View:
    """Returns which components the logit of a token comes from, by default of the most probable token.

    With `against`, the difference to the logit of that token; `top` is the number of components in a table.
    """
    check_int("top", top, least=1)
    config = prompted.runner.config
    values = prompted.runner.run(prompted.ids, list_values(config))
    place = check_position(position, len(prompted.ids))
    if token is None:
        token = _find_most_probable(values[find_logits_name(config)], place, against)
    found = compute_attribution(
        values, config, prompted.runner.weights, token=token, against=against, position=place
    )
    what, where = (
        f"the logit of “{prompted.show_token(token)}”",
        f"after “{prompted.labels[place]}” (t={place})",
    )
    if against is not None:
        what += f" less that of “{prompted.show_token(against)}”"
    notes = []
    if found.logit_name == "unembedded":
        notes.append("The logits have a soft cap: the parts add up to the logit before it (unembedded).")
    if found.sources is None:
        notes.append("This attention has no pattern among its values, so heads are not split by key.")
    (largest,) = found.largest(1)
    return View(
        "attribution",
        f"What {what} {where} comes from",
        FORMULA,
        [_part_table(found, top), *_source_tables(prompted, found, top)],
        list(_plots(found)),
        notes,
        _to_data(prompted, found),
        f"{largest.label} adds most to the logit: {largest.value:+.3f} of {found.logit:+.3f}.",
    )


def _part_table(found: Attribution, top: int) -> ViewTable:
    """Returns the largest parts, the exact sum of all others, and the logit."""
    largest = found.largest(top)
    others = [part.value for part in found.contributions if part not in largest]
    rows: list[Sequence[str | float]] = [(part.label, part.value) for part in largest]
    if others:
        rows.append((f"{len(others)} others", float(np.sum(others))))
    rows.append((f"sum ({found.logit_name})", found.total))
    return ViewTable("the largest parts", ["component", "adds"], rows)


def _source_tables(prompted: PromptedModel, found: Attribution, top: int) -> list[ViewTable]:
    """Returns the keys from which the heads of the largest parts take them."""
    if found.sources is None:
        return []
    order = np.argsort(-np.abs(found.sources), axis=None, kind="stable")[:top]
    rows: list[Sequence[str | float]] = []
    for layer, head, s in zip(*np.unravel_index(order, found.sources.shape), strict=True):
        value = float(found.sources[layer, head, s])
        rows.append((f"L{layer} head {head}", f"{prompted.labels[s]} (s={s})", value))
    return [ViewTable("the largest parts of heads, by key", ["head", "from", "adds"], rows)]


def _plots(found: Attribution) -> list[Plot]:
    layers = [f"L{layer}" for layer in range(len(found.heads))]
    columns = [f"{head}" for head in range(found.heads.shape[1])]
    groups = {"heads": found.heads.sum(1)}
    if len(found.mlps):
        groups["MLP"] = found.mlps
    return [
        Bars("what each layer adds", layers, groups, "logit", decimals=3),
        Grid(
            "what each head adds",
            found.heads,
            layers,
            columns,
            "layer",
            "head",
            "signed",
            decimals=2,
            is_compact=len(columns) > MANY_HEADS,
        ),
    ]


def _to_data(prompted: PromptedModel, found: Attribution) -> dict[str, object]:
    def text(id: int | None) -> str | None:
        return None if id is None else prompted.show_token(id)

    return {
        "token": found.token,
        "token_text": text(found.token),
        "against": found.against,
        "against_text": text(found.against),
        "position": found.position,
        "logit_name": found.logit_name,
        "logit": found.logit,
        "sum": found.total,
        "remainder": found.remainder,
        "contributions": [
            {"name": part.name, "layer": part.layer, "head": part.head, "value": part.value}
            for part in found.contributions
        ],
        "heads": found.heads.tolist(),
        "mlps": found.mlps.tolist(),
        "sources": None if found.sources is None else found.sources.tolist(),
    }
