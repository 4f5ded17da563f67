"""Path patching: what a sender gives to one receiver along the residual stream, and to it alone.

A sender is a value that is added to the residual stream (a head's output, an MLP's, the embeddings), a
receiver any later value (the queries, keys or values of a head, the input of an MLP, the logits). Three runs:

    1. every value of the base prompt, and the sender's value in the source prompt;
    2. the base prompt with the sender replaced by its source value, and with every head output and MLP output
       between the two held at its base value: the receiver is recomputed from the residual stream, with the
       norms on the way to it, and recorded;
    3. the base prompt with the receiver replaced by what run 2 recorded; everything after it is recomputed.

So the edge sender → receiver is direct: through the residual stream, the norm in front of the receiver and
its own projection. Held fixed are all other edges: from the sender into any other component, and through
these into the receiver. The effect is that of activation patching, (m_3 − m_base) / (m_source − m_base).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from pellucid.base.errors import UsageError, show
from pellucid.base.formatting import pluralize
from pellucid.interpretability.patching import (
    DIRECTIONS,
    Direction,
    PatchingEffects,
    PatchMetric,
    choose_metric,
    compare_prompts,
    describe_difference,
    describe_pair,
    list_data,
    list_largest,
    map_effects,
    state_effect,
    take_value,
)
from pellucid.interpretability.runner import Patch, PromptedModel, Runner
from pellucid.interpretability.sites import (
    Progress,
    Replacement,
    Site,
    check_site,
    count_rows,
    list_outputs,
    list_sites,
    read_site,
    run_variants,
)
from pellucid.report.items import View, ViewTable

SENDERS = "blocks.*.attn.head_out"
RECEIVER = "logits"
STAGES = {
    "resid_pre": 0, "attn_norm": 0, "attn": 0, "attn_out": 0,
    "attn_out_norm": 1, "attn_sum": 1, "attn_post_norm": 1, "resid_mid": 1, "mlp_norm": 1,
    "mlp": 1, "mlp_out": 1,
    "mlp_out_norm": 2, "mlp_sum": 2, "mlp_post_norm": 2, "resid_post": 2,
}  # fmt: skip
"""How many sub-layers of its own block a value comes after: attention, then the MLP."""
INPUTS = ("embedded", "positioned")
"""Senders before the first block."""
MOST_SENDERS = 30
"""Senders of largest effect that the table lists."""
OUTPUTS = ("attn.head_out", "attn_out", "mlp_out", "resid_pre", "resid_mid", "resid_post")
"""Senders in a block: what is added to the residual stream, and the stream itself."""


@dataclass(frozen=True)
class PathEffects:
    """The effect of each sender through one receiver."""

    senders: PatchingEffects
    receiver: Site


def find_stage(name: str) -> tuple[int, int]:
    """Returns how many blocks, and sub-layers of its own block, a value comes after; the logits come after
    all.

    >>> find_stage("embedded"), find_stage("blocks.3.mlp.up"), find_stage("logits") > (9, 2)
    ((-1, 2), (3, 1), True)
    """
    if name.partition(".")[0] in ("embedded", "positioned", "embed_norm"):
        return -1, 2
    if not name.startswith("blocks."):
        return 2**31, 0
    _, layer, tail = name.split(".", 2)
    return int(layer), STAGES[tail.partition(".")[0]]


def patch_paths(
    runner: Runner,
    clean: Sequence[int],
    corrupted: Sequence[int],
    metric: PatchMetric,
    *,
    sender: str = SENDERS,
    receiver: str = RECEIVER,
    direction: Direction = "denoising",
    progress: Progress = lambda done, total: None,
) -> PathEffects:
    """Returns the effect of each sender through the receiver.

    `sender` is a site, or a name or pattern of names, of which every head or position is a sender by itself;
    those that do not come before the receiver are omitted. `receiver` is a site.
    """
    pair = compare_prompts(runner, clean, corrupted, metric, direction)
    into, length = read_site(receiver), len(pair.base_ids)
    check_site(runner, into, length)
    senders = find_senders(runner, sender, into, length)
    source = runner.run(list(pair.source_ids), list(dict.fromkeys(site.name for site in senders)))
    held = [name for name in list_outputs(runner) if find_stage(name) < find_stage(into.name)]
    base = runner.run(list(pair.base_ids), held) if held else {}
    shared, at_once, metrics = [Patch(*pair) for pair in base.items()], count_rows(runner, length), []
    for start in range(0, len(senders), at_once):
        changes = [[take_value(site, source)] for site in senders[start : start + at_once]]
        received = run_variants(
            runner,
            pair.base_ids,
            changes,
            into.name,
            lambda values: values[(slice(None), *into.index)],
            shared,
        )
        changes = [[Replacement(into, value)] for value in received]
        metrics.append(run_variants(runner, pair.base_ids, changes, "logits", metric.compute))
        progress(start + len(changes), len(senders))
    return PathEffects(PatchingEffects(pair, senders, pair.compute_effects(np.concatenate(metrics))), into)


def find_senders(runner: Runner, sender: str, receiver: Site, length: int) -> list[Site]:
    """Returns the sites that a text names as senders, those that come before the receiver."""
    known = [
        *INPUTS,
        *(f"blocks.{layer}.{tail}" for layer in range(runner.config.n_layer) for tail in OUTPUTS),
    ]
    if "[" in sender:
        given = read_site(sender)
        check_site(runner, given, length)
        sites = [given]
    else:
        names = [name for name in known if fnmatchcase(name, sender)]
        sites = [site for name in names for site in list_sites(name, _find_shape(runner, name, length))]
    if not sites or any(site.name not in known for site in sites):
        raise UsageError(
            f"{show(sender)} is not a sender: only what is added to the residual stream is, "
            f"{', '.join(INPUTS)} and blocks.L.X with X one of {', '.join(OUTPUTS)}."
        )
    found = [site for site in sites if _is_before(site, receiver)]
    if not found:
        raise UsageError(f"{sender} does not come before {receiver}, so there is no path between them.")
    return found


def _find_shape(runner: Runner, name: str, length: int) -> tuple[int, ...]:
    config = runner.config
    return (1, config.n_head, length, config.d_model) if "head_out" in name else (1, length, config.d_model)


def _is_before(sender: Site, receiver: Site) -> bool:
    """Returns whether a receiver reads the residual stream after the sender was added to it."""
    stage = find_stage(sender.name)
    is_added = sender.name.endswith(("attn_out", "head_out", "mlp_out"))
    return (stage[0], stage[1] + is_added) <= find_stage(receiver.name)


def view_paths(
    prompted: PromptedModel,
    *,
    corrupted: PromptedModel | None = None,
    answer: int | None = None,
    wrong: int | None = None,
    position: int = -1,
    sender: str = SENDERS,
    receiver: str = RECEIVER,
    direction: Direction = "denoising",
    progress: Progress = lambda done, total: None,
) -> View:
    """Returns the effect of each sender through the receiver alone, between the prompt, which is the clean
    one, and a corrupted one."""
    other, metric = choose_metric(prompted, corrupted, answer, wrong, position)
    found = patch_paths(
        prompted.runner,
        prompted.ids,
        other.ids,
        metric,
        sender=sender,
        receiver=receiver,
        direction=direction,
        progress=progress,
    )
    label, effects = DIRECTIONS[direction], found.senders
    base, source = ("corrupted", "clean") if direction == "denoising" else ("clean", "corrupted")
    return View(
        "paths",
        f"Path patching of {prompted.name}: into {found.receiver}",
        f"{metric.describe(prompted)}\n{state_effect(direction)}\n"
        f"the sender has its {source} value only where {found.receiver} reads it; every head output and MLP "
        f"output between them has its {base} value",
        [
            describe_pair(effects.pair, prompted, other),
            ViewTable(
                f"senders into {found.receiver} ({label} fraction)",
                ["sender", "token", label],
                list_largest(effects, prompted, MOST_SENDERS),
            ),
        ],
        map_effects(prompted, effects, label),
        [f"{pluralize(len(effects.sites), 'sender')}, one at a time.", describe_difference(prompted, other)],
        {"receiver": str(found.receiver), **list_data(effects, metric, direction)},
    )
