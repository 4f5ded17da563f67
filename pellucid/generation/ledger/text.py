"""A ledger as text: its settings, one line per token, and its speculative steps.

Tokens are numbered from 1. Surprisal and entropy are of the model's own distribution, in nats.
"""

import math
from collections.abc import Iterator, Sequence

from pellucid.base.columns import cut, display_width, pad, wrap
from pellucid.base.formatting import pluralize
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import BeamNode, Entry
from pellucid.generation.ledger.settings_text import WIDTH, format_settings
from pellucid.generation.ledger.token_text import GAP, PROPOSER_WORDS, format_probability, token_text
from pellucid.generation.request import Completion

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
