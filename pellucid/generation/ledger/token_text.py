"""One token of a ledger and its choice, as text: what each sampler removed, the candidates and the draw."""

import math
from collections.abc import Iterator, Sequence

from pellucid.base.arguments import check_int
from pellucid.base.columns import cut, display_width, pad, wrap
from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls, format_number, pluralize
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import Candidate, Entry, compute_intervals
from pellucid.generation.ledger.settings_text import WIDTH, format_sampler

LONGEST_TOKEN = 16
"""Columns of a token; a longer one is cut."""
BAR = 12
SHOWN = 20
"""Candidates that are listed at most."""
GAP = "  "
PROPOSER_WORDS = {"draft": "the draft model", "lookup": "prompt look-up"}


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
