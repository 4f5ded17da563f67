"""A ledger as text: its settings, one line per token, its speculative steps, its beams; and how one token was
chosen.

Tokens are numbered from 1. Surprisal and entropy are of the model's own distribution, in nats.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pellucid.base.arguments import check_int
from pellucid.base.columns import cut, display_width, pad, wrap
from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls, format_number, pluralize
from pellucid.generation.ledger.content import LedgerRecord, LedgerSampler
from pellucid.generation.ledger.entry import BeamNode, Candidate, Entry, compute_intervals
from pellucid.generation.request import Completion
from pellucid.generation.settings.sampling import Sampling

WIDTH = 100
"""Columns where no terminal says how many it has."""
PROMPT_END = 24
"""Tokens of the prompt that are shown: its last ones."""
LONGEST_TOKEN = 16
"""Columns of a token; a longer one is cut."""
BAR = 12
SHOWN = 20
"""Candidates that are listed at most."""
GAP = "  "
PROPOSER_WORDS = {"draft": "the draft model", "lookup": "prompt look-up"}
SHOWN_STEPS = 20
"""Speculative steps that are listed."""
NOTE = (
    "p: the probability after every sampler. Surprisal −ln p and entropy −Σ p ln p are of the model's own p, "
    "in nats (1 nat = {bits:.2f} bits). Rank 0 has the largest logit."
)


def format_ledger(ledger: LedgerRecord, width: int = WIDTH, most: int | None = None) -> Iterator[str]:
    """Yields the settings, a table of each choice, of at most `most` tokens, and what else is recorded."""
    yield from format_settings(ledger, width)
    for completion in ledger.completions:
        yield ""
        if len(ledger.completions) > 1:
            yield f"choice {completion.choice}{_format_score(completion)}"
        yield from format_table(ledger, completion, width, most)
        yield from _format_speculation(ledger, completion, width)
    if any(completion.entries for completion in ledger.completions):
        yield from wrap(NOTE.format(bits=1 / math.log(2)), width)
    if ledger.beams:
        yield ""
        yield from format_beams(ledger)


def _format_score(completion: Completion) -> str:
    return "" if completion.score is None else f", score {completion.score:.4f}"


# ---- the table


def format_table(
    ledger: LedgerRecord, completion: Completion, width: int = WIDTH, most: int | None = None
) -> Iterator[str]:
    """Yields one line for each token of a choice; the columns that matter least are omitted where the width
    does not suffice."""
    entries = completion.entries[:most]
    if not entries:  # of a beam
        yield from wrap(" ".join(token_text(ledger, id) for id in completion.ids) or "no tokens", width)
        return
    heads = ("#", "token", "p", "surprisal", "rank", "entropy", "u", "kept")
    rows = [_table_row(ledger, completion, step, entry) for step, entry in enumerate(entries)]
    widths = [max(display_width(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    shown = list(range(len(heads)))
    for column in (7, 5, 6, 4):  # kept, entropy, u, rank
        if sum(widths[i] + len(GAP) for i in shown) <= width:
            break
        shown.remove(column)
    used = sum(widths[i] + len(GAP) for i in shown)
    room = width - used if width - used >= 20 else 0

    def lay_out(row: Sequence[str], rest: str) -> str:
        cells = [pad(row[i], widths[i], right=i != 1) for i in shown]
        return GAP.join([*cells, cut(rest, room)] if room else cells).rstrip()

    yield lay_out(heads, "other candidates")
    for row, entry in zip(rows, entries, strict=True):
        yield lay_out(row, _other_candidates(ledger, entry, room))
    if len(completion.entries) > len(entries):
        yield f"… {len(completion.entries) - len(entries):,} more tokens"
    mean = math.fsum(entry.surprisal for entry in completion.entries) / len(completion.entries)
    count = pluralize(len(completion.ids), "token")
    yield f"{count}, ended by {completion.finish}, mean surprisal {mean:.3f}"


def _table_row(ledger: LedgerRecord, completion: Completion, step: int, entry: Entry) -> tuple[str, ...]:
    return (
        str(step + 1),
        token_text(ledger, entry.id),
        format_probability(entry.probability),
        f"{entry.surprisal:.3f}",
        f"{entry.rank:,}",
        f"{entry.entropy:.3f}",
        "" if entry.u is None else f"{entry.u:.4f}",
        f"{entry.kept:,}",
    )


def _other_candidates(ledger: LedgerRecord, entry: Entry, room: int) -> str:
    """Returns the most probable candidates beside the chosen one, as many as fit whole."""
    text = ""
    for one in entry.candidates:
        if one.id == entry.id:
            continue
        more = (
            f"{text}{GAP if text else ''}{token_text(ledger, one.id)} {format_probability(one.probability)}"
        )
        if display_width(more) > room:
            break
        text = more
    return text


# ---- speculative steps and beams


def _format_speculation(ledger: LedgerRecord, completion: Completion, width: int) -> Iterator[str]:
    for one in completion.speculative[:SHOWN_STEPS]:
        texts = [token_text(ledger, id) for id in one.proposed]
        accepted = " ".join(texts[: one.accepted]) or "none"
        wrong = f"; rejected {' '.join(texts[one.accepted :])}" if one.accepted < len(texts) else ""
        by = f"before token {one.step + 1} {PROPOSER_WORDS[one.proposer]} proposed {len(texts)}"
        yield from wrap(f"{by}: accepted {accepted}{wrong}", width)
    if len(completion.speculative) > SHOWN_STEPS:
        yield f"… {len(completion.speculative) - SHOWN_STEPS:,} more speculative steps"


def format_beams(ledger: LedgerRecord, most: int = 60) -> Iterator[str]:
    """Yields the tree of a beam search, each node below its parent; `✓` ends a beam and `✗` is pruned."""
    children: dict[int, list[int]] = {}
    for place, node in enumerate(ledger.beams):
        children.setdefault(node.parent, []).append(place)
    chosen = {one.node: one.choice for one in ledger.completions if one.node is not None}
    yield f"{pluralize(len(ledger.beams), 'node')} of the beam search: ln p, sum of ln p"
    yield "✗ pruned, ✓ / length penalty = final score"
    waiting = [(place, "") for place in reversed(children.get(-1, []))]
    shown = 0
    while waiting and shown < most:
        place, indent = waiting.pop()
        node = ledger.beams[place]
        siblings = children[node.parent]
        is_last = place == siblings[-1]
        yield f"{indent}{'└ ' if is_last else '├ '}{_format_node(ledger, node, chosen.get(place))}"
        inner = indent + ("  " if is_last else "│ ")
        waiting += [(child, inner) for child in reversed(children.get(place, []))]
        shown += 1
    if shown < len(ledger.beams):
        yield f"… {len(ledger.beams) - shown:,} more nodes"


def _format_node(ledger: LedgerRecord, node: BeamNode, choice: int | None) -> str:
    text = f"{token_text(ledger, node.id)} {node.logprob:.4f} {node.score:.4f}"
    if node.final is not None and node.penalty is not None:
        text += f" ✓ / {node.penalty:.4g} = {node.final:.4f}"
    mark = " ✗" if node.fate == "pruned" else ""
    return text + mark + (f"  ← choice {choice}" if choice is not None else "")


# ---- the settings: everything that decided a text beside its logits, and where it came from


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


# ---- one token: what each sampler removed, the candidates and the draw


def token_text(ledger: LedgerRecord, id: int, width: int = LONGEST_TOKEN) -> str:
    """Returns a token for display, a number where the ledger has no text for it."""
    return cut(escape_controls(ledger.texts.get(id, f"#{id}"), keep="") or "(empty)", width)


def format_probability(value: float) -> str:
    """
    >>> format_probability(0.25), format_probability(1.0), format_probability(3.2e-7)
    ('0.2500', '1', '3.2e-07')
    """
    if value in (0, 1):
        return f"{value:g}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def find_step(ledger: LedgerRecord, number: int, choice: int = 0) -> int:
    """Returns how many new tokens are before a token, by its number from 1; negative ones count from the
    end."""
    if not 0 <= check_int("choice", choice) < len(ledger.completions):
        raise UsageError(f"choices go from 0 to {len(ledger.completions) - 1}; got {choice}.")
    count = len(ledger.completions[choice].ids)
    if check_int("token", number) == 0 or not -count <= number <= count:
        raise UsageError(f"tokens go from 1 to {count:,}; got {number:,}.")
    return number - 1 if number > 0 else count + number


def find_token(ledger: LedgerRecord, number: int, choice: int = 0) -> Entry:
    """Returns the entry of a token, by its number."""
    step = find_step(ledger, number, choice)
    entries = ledger.completions[choice].entries
    if not entries:
        raise UsageError("this ledger has no candidates of its tokens: print it to see its beams.")
    return entries[step]


def format_token(ledger: LedgerRecord, number: int, choice: int = 0, width: int = WIDTH) -> Iterator[str]:
    """Yields how one token was chosen: what each sampler removed, the candidates, and the draw."""
    step = find_step(ledger, number, choice)
    entry = find_token(ledger, number, choice)
    before = ledger.read_context(choice, step)
    label = f"token {step + 1}" + (f" of choice {choice}" if len(ledger.completions) > 1 else "")
    yield f"{label}: {token_text(ledger, entry.id)} (id {entry.id})"
    yield _format_end([token_text(ledger, id) for id in before], width)
    own = math.exp(-entry.surprisal)
    yield f"  the model's own p = {format_probability(own)}, rank {entry.rank:,}"
    yield f"  surprisal {entry.surprisal:.4f} nats, entropy {entry.entropy:.4f} nats"
    if entry.note:
        yield f"  {escape_controls(entry.note, keep='')}"
    yield ""
    yield from _format_chain(ledger, entry, width)
    yield ""
    yield from _format_candidates(ledger, entry, width)
    yield ""
    for line in wrap(describe_draw(ledger, choice, step, entry), width - 2):
        yield f"  {line}"


def _format_end(texts: Sequence[str], width: int) -> str:
    """Returns a line with as many of the last tokens of the context as it has room for."""
    head, shown = f"  after {pluralize(len(texts), 'token')}:", ""
    for place in reversed(range(len(texts))):
        longer = f" {texts[place]}{shown}"
        if display_width(head + longer) + 2 > width:
            return f"{head} …{shown}"
        shown = longer
    return head + shown


def _format_chain(ledger: LedgerRecord, entry: Entry, width: int) -> Iterator[str]:
    left = ledger.model.vocab_size
    yield f"  {left:,} logits"
    names = count_names([sampler.kind for sampler in ledger.chain])
    removed = {removal.sampler: removal for removal in entry.removed}
    for name, sampler in zip(names, ledger.chain, strict=True):
        line = f"  → {cut(format_sampler(sampler), 40)}"
        if (removal := removed.pop(name, None)) is not None:
            left -= removal.count
            line += f": removed {removal.count:,} with p = {format_probability(removal.mass)}, "
            listed = ", ".join(token_text(ledger, id) for id in removal.ids)
            line += listed + (" …" if removal.count > len(removal.ids) else "")
        yield cut(line, width)
    for removal in removed.values():
        yield cut(f"  → {removal.sampler}: removed {removal.count:,}", width)
    yield f"  → {pluralize(entry.kept, 'candidate')}"


def count_names(kinds: Sequence[str]) -> list[str]:
    """Returns a name for each sampler, as removals have it: the second of a kind is KIND_2.

    >>> count_names(["top_k", "top_p", "top_k"])
    ['top_k', 'top_p', 'top_k_2']
    """
    names = list[str]()
    for i, kind in enumerate(kinds):
        before = kinds[:i].count(kind)
        names.append(f"{kind}_{before + 1}" if before else kind)
    return names


def _format_candidates(ledger: LedgerRecord, entry: Entry, width: int) -> Iterator[str]:
    listed, hidden = fold_candidates(entry, SHOWN)
    intervals = compute_intervals(entry)
    rows = [("", "candidate", "logit", "score", "p", "cumulative p")]
    for one in listed:
        start, end = intervals[one.id]
        texts = ("▸" if one.id == entry.id else "", token_text(ledger, one.id))
        numbers = (
            format_number(one.logit, 5),
            format_number(one.score, 5),
            format_probability(one.probability),
        )
        rows.append((*texts, *numbers, f"{start:.4f} – {end:.4f}"))
    widths = [max(display_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    shown = list(range(len(widths)))
    while sum(widths[i] + len(GAP) for i in shown) + len(" ← u") > width and len(shown) > 3:
        shown.remove(max(shown, key=lambda i: (i in (3, 5), i == 3)))  # the score first, then the interval
    room = width - sum(widths[i] + len(GAP) for i in shown) - len(GAP)
    largest = max(one.probability for one in listed)
    for i, row in enumerate(rows):
        line = "  " + GAP.join(pad(row[j], widths[j], right=j > 1) for j in shown)
        if i and room >= BAR + 14:
            line += GAP + draw_bar(listed[i - 1].probability / largest, BAR)
        if i and listed[i - 1].id == entry.id and entry.u is not None:
            line += f"  ← u = {entry.u:.4f}" if room >= BAR + 14 else " ← u"
        yield line.rstrip()
        if i == SHOWN - 1 and hidden:
            yield f"    … {pluralize(hidden, 'candidate')} between them"
    if rest := entry.kept - len(entry.candidates):
        mass = 1 - math.fsum(one.probability for one in entry.candidates)
        yield f"    … and {rest:,} more, with p = {format_probability(max(mass, 0.0))} together"


def fold_candidates(entry: Entry, most: int) -> tuple[list[Candidate], int]:
    """Returns at most that many candidates, the chosen one among them, and how many before it are omitted."""
    listed = list(entry.candidates)
    if len(listed) <= most:
        return listed, 0
    place = find_place(entry)
    if place is None or place < most:
        return listed[:most], 0
    return [*listed[: most - 1], listed[place]], place - most + 1


def find_place(entry: Entry) -> int | None:
    """Returns the place of the token among its candidates, None where they are not listed as far."""
    return next((i for i, one in enumerate(entry.candidates) if one.id == entry.id), None)


def draw_bar(share: float, width: int) -> str:
    """
    >>> draw_bar(0.5, 4), draw_bar(0.03, 4)
    ('██', '▏')
    """
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def describe_draw(ledger: LedgerRecord, choice: int, step: int, entry: Entry) -> str:
    """Returns the rule by which the token was chosen, with its numbers."""
    if ledger.sampling.beams > 1:
        return "chosen by beam search: the beam with the largest sum of ln p over its length penalty."
    if entry.u is None:
        return "greedy decoding: the candidate with the largest score; no number was drawn."
    return (
        f"u = {entry.u!r} from seed {ledger.seed}, choice {choice}, {step} tokens before it: the first "
        "candidate whose cumulative p exceeds u."
    )
