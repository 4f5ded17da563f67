"""Activation patching: what a part of a named value carries from one prompt to another.

Two prompts of equally many tokens differ in what is asked about. One is run while a part of a value is
replaced by what it is in the other, and a metric m of the logits says how far the output follows:

    effect = (m_patched − m_base) / (m_source − m_base)

Denoising runs the corrupted prompt (base) with values of the clean one (source): the effect is the recovered
fraction, (m_patched − m_corrupted) / (m_clean − m_corrupted). Noising runs the clean prompt with values of
the corrupted one: the effect is the lost fraction. Replacing nothing has the effect 0, everything 1.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Literal

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import TokenError, UsageError, unknown
from pellucid.base.formatting import pluralize
from pellucid.base.names import describe
from pellucid.interpretability.runner import PromptedModel, Runner, Values, check_position, check_tokens
from pellucid.interpretability.sites import (
    PARTS,
    DivideBy,
    Progress,
    Replacement,
    Site,
    is_replaceable,
    list_sites,
    run_variants,
)
from pellucid.reference.ops.softmax import logsumexp
from pellucid.report.diagram import Grid
from pellucid.report.items import Entry, View, ViewTable

Direction = Literal["denoising", "noising"]
DIRECTIONS = {"denoising": "recovered", "noising": "lost"}
"""The directions, and what the effect is the fraction of."""
NAMES = ("blocks.*.resid_pre", "blocks.*.attn_out", "blocks.*.mlp_out", "blocks.*.attn.head_out")
"""The values that are patched by default: the residual stream, attention and MLP by position, and heads."""
MOST_LISTED = 8
"""Parts of largest effect that the table lists of each value, over all layers."""


@dataclass(frozen=True)
class PatchMetric:
    """m = logit(answer) − logit(wrong) at a position, or ln p(answer) without a wrong answer."""

    answer: int
    wrong: int | None = None
    position: int = -1

    def compute(self, logits: Array) -> Array:
        """Returns m for each row of logits [B T V], [B]."""
        here = logits[:, self.position]
        against = logsumexp.forward(here) if self.wrong is None else here[:, self.wrong]
        difference: Array = here[:, self.answer] - against
        return difference

    def describe(self, prompted: PromptedModel) -> str:
        """Returns the formula with the tokens as they are shown."""
        answer, at = prompted.show_token(self.answer), self.position % len(prompted.ids)
        if self.wrong is None:
            return f"m = ln p({answer}) at position {at}"
        return f"m = logit({answer}) − logit({prompted.show_token(self.wrong)}) at position {at}"


@dataclass(frozen=True, eq=False)
class PatchedPair:
    """The metric of two prompts; the base is run with values of the source."""

    clean: float
    corrupted: float
    base: float
    source: float
    base_ids: tuple[int, ...]
    source_ids: tuple[int, ...]

    def compute_effects(self, metrics: Array) -> Array:
        """Returns (m − m_base) / (m_source − m_base)."""
        effects: Array = (metrics - self.base) / (self.source - self.base)
        return effects


@dataclass(frozen=True, eq=False)
class PatchingEffects:
    """The effect of each site, [N], with the metric of the two prompts."""

    pair: PatchedPair
    sites: Sequence[Site]
    effects: Array


def compare_prompts(
    runner: Runner,
    clean: Sequence[int],
    corrupted: Sequence[int],
    metric: PatchMetric,
    direction: Direction = "denoising",
) -> PatchedPair:
    """Returns the metric of both prompts; prompts with the same metric cannot be told apart by it and are
    refused."""
    if direction not in DIRECTIONS:
        raise UsageError(unknown("direction", direction, DIRECTIONS))
    logits = (runner.run(list(ids), ["logits"])["logits"] for ids in (clean, corrupted))
    of_clean, of_corrupted = (float(metric.compute(each)[0]) for each in logits)
    if np.isclose(of_clean, of_corrupted, rtol=1e-6, atol=1e-9):
        raise UsageError(
            f"the metric is {of_clean:.6g} on the clean and on the corrupted prompt, so that no difference "
            "can be recovered: choose prompts, or answers, for which it differs."
        )
    if direction == "denoising":
        return PatchedPair(of_clean, of_corrupted, of_corrupted, of_clean, tuple(corrupted), tuple(clean))
    return PatchedPair(of_clean, of_corrupted, of_clean, of_corrupted, tuple(clean), tuple(corrupted))


def patch_activations(
    runner: Runner,
    clean: Sequence[int],
    corrupted: Sequence[int],
    metric: PatchMetric,
    *,
    names: Sequence[str] = NAMES,
    part: DivideBy | None = None,
    direction: Direction = "denoising",
    progress: Progress = lambda done, total: None,
) -> PatchingEffects:
    """Returns the effect of every part of the values whose names match a pattern.

    A value is divided by heads where it has any, else by positions, or as `part` says.
    """
    pair = compare_prompts(runner, clean, corrupted, metric, direction)
    source = record_values(runner, pair.source_ids, names)
    sites = [site for name, value in source.items() for site in list_sites(name, value.shape, part)]
    variants = [[take_value(site, source)] for site in sites]
    metrics = run_variants(runner, pair.base_ids, variants, "logits", metric.compute, progress=progress)
    return PatchingEffects(pair, sites, pair.compute_effects(metrics))


def record_values(runner: Runner, ids: Sequence[int], names: Sequence[str]) -> dict[str, Array]:
    """Returns the values of a prompt whose names match a pattern and that a run can replace, in the order of
    the patterns and layers."""
    if runner.config.mlp.is_none and names is NAMES:
        names = [name for name in names if "mlp" not in name]
    seen = runner.run(list(ids), list(names))
    found = [name for name in seen if is_replaceable(name)]
    if not found:
        raise UsageError(f"{', '.join(names)} names only weights and tables, which both prompts share.")
    order = {
        name: (
            next(i for i, pattern in enumerate(names) if fnmatchcase(name, pattern)),
            Site(name).layer or 0,
        )
        for name in found
    }
    return {name: seen[name] for name in sorted(found, key=order.__getitem__)}


def take_value(site: Site, values: Values) -> Replacement:
    """Returns the replacement of a site by what it is in the recorded values of one prompt."""
    return Replacement(site, values[site.name][(0, *site.index)])


def check_lengths(clean: PromptedModel, corrupted: PromptedModel) -> None:
    """Raises a TokenError unless both prompts have equally many tokens; it says where they differ first."""
    if len(clean.ids) == len(corrupted.ids):
        return
    ours, theirs = clean.labels, corrupted.labels
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    shown: tuple[list[str], list[str]] = ([], [])
    first = ""
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        for i in range(max(a_end - a, b_end - b)):
            pair = [ours[a + i] if a + i < a_end else "", theirs[b + i] if b + i < b_end else ""]
            wide = max(map(len, pair))
            for line, token in zip(shown, pair, strict=True):
                line.append(token.ljust(wide))
        if kind != "equal" and not first and a_end - a != b_end - b:
            here, there = " ".join(ours[a:a_end]), " ".join(theirs[b:b_end])
            first = f"at position {a}, the clean one has {here or 'nothing'} for {there or 'nothing'}"
    raise TokenError(
        f"patching needs prompts of equally many tokens; the clean one has {len(ours)}, the corrupted one "
        f"{len(theirs)}: {first}. Choose words of equally many tokens.\n"
        f"  clean      {' '.join(shown[0]).rstrip()}\n  corrupted  {' '.join(shown[1]).rstrip()}"
    )


def choose_metric(
    clean: PromptedModel,
    corrupted: PromptedModel | None,
    answer: int | None,
    wrong: int | None,
    position: int,
) -> tuple[PromptedModel, PatchMetric]:
    """Returns the corrupted prompt and the metric, both checked; by default the answer is the most likely
    token after the clean prompt, and the wrong one that after the corrupted prompt where it is another."""
    if corrupted is None:
        raise UsageError(
            "patching compares two prompts: give the other one with --corrupted (in Python, corrupted=…)."
        )
    check_lengths(clean, corrupted)
    position = check_position(position, len(clean.ids))
    check_tokens(clean.runner.config, (answer, wrong))
    if answer is None:
        logits = (each.runner.run(list(each.ids), ["logits"])["logits"] for each in (clean, corrupted))
        answer, other = (int(each[0, position].argmax()) for each in logits)
        wrong = other if wrong is None and other != answer else wrong
    if answer == wrong:
        raise UsageError("the answer and the wrong answer are the same token: choose another.")
    return corrupted, PatchMetric(answer, wrong, position)


def map_effects(prompted: PromptedModel, found: PatchingEffects, label: str) -> list[Grid]:
    """Returns a map layer × position, or layer × head, for each value that has several parts; values of the
    same name in other layers are rows of one map."""
    rows: dict[str, dict[str, list[float]]] = {}
    letters: dict[str, str] = {}
    pairs = zip(found.sites, found.effects.tolist(), strict=True)
    for _, some in groupby(pairs, key=lambda pair: pair[0].name):
        each = list(some)
        site = each[0][0]
        if site.at:
            family = find_family(site)
            letters[family] = site.at[0][0]
            rows.setdefault(family, {})["" if site.layer is None else str(site.layer)] = [e for _, e in each]
    maps = []
    for family, layers in rows.items():
        values = np.array(list(layers.values()))
        is_position = letters[family] in PARTS["position"]
        columns = prompted.labels if is_position else [str(i) for i in range(values.shape[1])]
        title, side = f"{_title(family)}: {label} fraction", "layer" if any(layers) else ""
        across = "position" if is_position else "head"
        maps.append(
            Grid(title, values, list(layers), columns, side, across, "signed", decimals=2, is_compact=True)
        )
    return maps


def _title(family: str) -> str:
    """Returns the standard term of a value that stands in every block, or outside of them."""
    entry = describe(f"blocks.0.{family}") or describe(family)
    return entry.term if entry else family


def list_largest(
    found: PatchingEffects, prompted: PromptedModel, most: int = MOST_LISTED
) -> list[list[Entry]]:
    """Returns the parts of largest effect, with the token of a position; at most this many of each value,
    since the residual stream carries everything at every layer."""
    rows: list[list[Entry]] = []
    listed = Counter[str]()
    for i in np.argsort(-np.abs(found.effects), kind="stable").tolist():
        site = found.sites[i]
        family = find_family(site)
        listed[family] += 1
        if listed[family] <= most:
            tokens = [prompted.labels[place] for axis, place in site.at if axis in PARTS["position"]]
            rows.append([str(site), " ".join(tokens), float(found.effects[i])])
    return rows


def find_family(site: Site) -> str:
    """Returns the name without its layer, which is the same in every block."""
    return site.name if site.layer is None else site.name.split(".", 2)[2]


def view_patching(
    prompted: PromptedModel,
    *,
    corrupted: PromptedModel | None = None,
    answer: int | None = None,
    wrong: int | None = None,
    position: int = -1,
    names: Sequence[str] = NAMES,
    part: DivideBy | None = None,
    direction: Direction = "denoising",
    progress: Progress = lambda done, total: None,
) -> View:
    """Returns the effect of patching each part of the named values between the prompt, which is the clean
    one, and a corrupted one, as maps."""
    other, metric = choose_metric(prompted, corrupted, answer, wrong, position)
    found = patch_activations(
        prompted.runner,
        prompted.ids,
        other.ids,
        metric,
        names=names or NAMES,
        part=part,
        direction=direction,
        progress=progress,
    )
    label, pair = DIRECTIONS[direction], found.pair
    return View(
        "patching",
        f"Activation patching of {prompted.name}",
        f"{metric.describe(prompted)}\n{state_effect(direction)}",
        [
            describe_pair(pair, prompted, other),
            ViewTable(f"parts of the largest effect ({label} fraction)",
                      ["part", "token", label], list_largest(found, prompted)),
        ],
        map_effects(prompted, found, label),
        [
            f"{pluralize(len(found.sites), 'part')} replaced, one at a time.",
            describe_difference(prompted, other),
        ],
        list_data(found, metric, direction),
    )  # fmt: skip


def list_data(found: PatchingEffects, metric: PatchMetric, direction: Direction) -> dict[str, object]:
    """Returns what was asked, the metric of both prompts, and every effect by its site."""
    return {
        "direction": direction,
        "answer": metric.answer,
        "wrong": metric.wrong,
        "position": metric.position % len(found.pair.base_ids),
        "clean": found.pair.clean,
        "corrupted": found.pair.corrupted,
        "effects": {str(site): e for site, e in zip(found.sites, found.effects.tolist(), strict=True)},
    }


def state_effect(direction: Direction) -> str:
    """Returns the formula of the effect."""
    if direction == "denoising":
        return "recovered = (m_patched − m_corrupted) / (m_clean − m_corrupted); the corrupted prompt is run"
    return "lost = (m_patched − m_clean) / (m_corrupted − m_clean); the clean prompt is run"


def describe_difference(clean: PromptedModel, corrupted: PromptedModel) -> str:
    """Returns the tokens in which two prompts of equally many differ."""
    pairs = enumerate(zip(clean.labels, corrupted.labels, strict=True))
    tokens = [f"{ours} and {theirs} at position {i}" for i, (ours, theirs) in pairs if ours != theirs]
    return f"The prompts differ in {'; '.join(tokens) or 'no token that is shown'}."


def describe_pair(pair: PatchedPair, clean: PromptedModel, corrupted: PromptedModel) -> ViewTable:
    """Returns both prompts with their metric."""
    rows: list[list[Entry]] = [
        ["clean", " ".join(clean.labels), pair.clean],
        ["corrupted", " ".join(corrupted.labels), pair.corrupted],
    ]
    return ViewTable("the two prompts", ["prompt", "text", "m"], rows)
