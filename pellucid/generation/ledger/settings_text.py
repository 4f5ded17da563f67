"""Settings of a ledger as text: everything that decided a text beside its logits, and where it came from."""

from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.base.columns import wrap
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.generation.ledger.content import LedgerRecord, LedgerSampler
from pellucid.generation.settings.sampling import Sampling

WIDTH = 100
"""Columns where no terminal says how many it has."""
PROMPT_END = 24
"""Tokens of the prompt that are shown: its last ones."""


def format_settings(ledger: LedgerRecord, width: int = WIDTH) -> Iterator[str]:
    """Yields the model, the settings and where they came from, the chain, the seed and the context."""
    for word, text in describe_settings(ledger):
        room = max(width - 13, 20)
        for i, line in enumerate(wrap(escape_controls(text, keep=""), room)):
            yield f"{'' if i else word:<11}  {line}"


def describe_settings(ledger: LedgerRecord) -> list[tuple[str, str]]:
    """Returns what a reader must know of a ledger before its tokens: pairs of a word and a text."""
    model, versions = ledger.model, ledger.versions
    by = f"pellucid {versions.pellucid}, torch {versions.torch}, {versions.machine}"
    cache = "" if model.cache_dtype == model.dtype else f", cache {model.cache_dtype}"
    named = f"{model.name}, {model.parameters:,} parameters, {model.dtype} on {model.device}{cache}"
    rows = [("model", named), ("computed by", by), ("prompt", _describe_prompt(ledger))]
    usual = Sampling()
    given = [
        f"{name}={format_setting(getattr(ledger.sampling, name))}{f' ({source})' if source else ''}"
        for name in usual.__dataclass_fields__
        if name != "seed"
        if (source := ledger.sources.get(name, "")) not in ("", "default")
        or getattr(ledger.sampling, name) != getattr(usual, name)
    ]
    rows.append(("sampling", ", ".join(given) or "the defaults: greedy decoding"))
    rows.append(("chain", " → ".join(["logits", *map(format_sampler, ledger.chain), describe_rule(ledger)])))
    if ledger.sampling.temperature > 0:
        rows.append(("seed", str(ledger.seed)))
    rows.append(("context", _describe_context(ledger)))
    if model.draft or any(completion.speculative for completion in ledger.completions):
        steps = [one for completion in ledger.completions for one in completion.speculative]
        accepted, proposed = sum(one.accepted for one in steps), sum(len(one.proposed) for one in steps)
        who = f"draft model {model.draft}" if model.draft else "prompt look-up"
        rows.append(("speculation", f"{who}: {accepted} of {proposed} proposed tokens accepted"))
    return rows


def describe_rule(ledger: LedgerRecord) -> str:
    """Returns by which rule a token is chosen from the scores."""
    if ledger.sampling.beams > 1:
        return f"beam search with {ledger.sampling.beams} beams"
    return "draw" if ledger.sampling.temperature > 0 else "largest"


def format_setting(value: Any) -> str:
    """Returns the value of a setting as a person writes it.

    >>> format_setting(0.8), format_setting((1, 2)), format_setting({7: -2.0}), format_setting(None)
    ('0.8', '[1, 2]', '{7: -2}', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_setting(one)}' for key, one in value.items())}}}"
    return str(list(value)) if isinstance(value, tuple) else str(value)


def format_sampler(sampler: LedgerSampler) -> str:
    """Returns a sampler with its settings: "top_k 40"."""
    settings = sampler.settings
    if set(settings) == {sampler.kind}:
        return f"{sampler.kind} {format_setting(settings[sampler.kind])}"
    given = ", ".join(f"{key}={format_setting(value)}" for key, value in settings.items())
    return f"{sampler.kind} ({given})" if given else sampler.kind


def _describe_prompt(ledger: LedgerRecord) -> str:
    end = " ".join(ledger.texts.get(id, f"#{id}") for id in ledger.prompt[-PROMPT_END:])
    more = "… " if len(ledger.prompt) > PROMPT_END else ""
    return f"{pluralize(len(ledger.prompt), 'token')}: {more}{end}"


def _describe_context(ledger: LedgerRecord) -> str:
    room = f"{ledger.sampling.context}, {ledger.model.context_length:,} tokens"
    cuts = [f"{cut.dropped:,} dropped before token {cut.step + 1}" for cut in ledger.shortenings[:3]]
    more = f" and {len(ledger.shortenings) - 3} times more" if len(ledger.shortenings) > 3 else ""
    return f"{room}; {', '.join(cuts)}{more}" if cuts else f"{room}; not full"
