"""`ledger`: how each token of a generated text was chosen, where a ledger is open."""

from typing import TYPE_CHECKING, Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls
from pellucid.base.schema import Range
from pellucid.server.explorer.session import Session

if TYPE_CHECKING:
    from pellucid.generation.ledger.content import LedgerRecord
    from pellucid.generation.ledger.entry import Entry

MOST_PROMPT = 1024
"""Tokens of the prompt that one answer lists."""
LONGEST_TEXT = 20_000
"""Characters of the generated text in an answer."""


def answer(
    session: Session,
    choice: Annotated[int, Range(0, 1_000_000)] = 0,
    from_: Annotated[int, Range(0, 2**31)] = 0,
    count: Annotated[int, Range(1, 32)] = 16,
    top: Annotated[int, Range(1, 32)] = 8,
) -> dict[str, Any]:
    """Returns the settings of a generated text, and of `count` new tokens from number `from` on: the draw,
    what each sampler removed, and the `top` most probable candidates with the interval of u of each."""
    from pellucid.generation.ledger.file import to_data

    ledger = session.ledger
    if ledger is None:
        raise UsageError("no ledger is open: open a file that `generate --ledger-file` wrote.")
    if choice >= len(ledger.completions):
        raise UsageError(f"there is no choice {choice}: choices go from 0 to {len(ledger.completions) - 1}.")
    done = ledger.completions[choice]
    tokens = [_describe_token(ledger, id) for id in done.ids[from_ : from_ + count]]
    for token, entry in zip(tokens, done.entries[from_ : from_ + count], strict=False):
        token |= _describe_entry(ledger, entry, top)
    following = from_ + len(tokens)
    return {
        "model": escape_controls(ledger.model.name, keep=""),
        "dtype": ledger.model.dtype,
        "seed": ledger.seed,
        "settings": to_data(ledger.sampling),
        "sources": dict(ledger.sources),
        "chain": [{"kind": one.kind, "settings": dict(one.settings)} for one in ledger.chain],
        "prompt": [_describe_token(ledger, id) for id in ledger.prompt[:MOST_PROMPT]],
        "prompt_count": len(ledger.prompt),
        "choices": len(ledger.completions),
        "choice": choice,
        "text": escape_controls(done.text[:LONGEST_TEXT]),
        "finish": done.finish,
        "count": len(done.ids),
        "from": from_,
        "tokens": tokens,
        "next": following if following < len(done.ids) else None,
    }


def _describe_token(ledger: "LedgerRecord", id: int) -> dict[str, Any]:
    return {"id": id, "label": escape_controls(ledger.texts.get(id, f"#{id}"), keep="")}


def _describe_entry(ledger: "LedgerRecord", entry: "Entry", top: int) -> dict[str, Any]:
    """Returns how a token was chosen; it is among its candidates, also where it is not one of the first."""
    from pellucid.generation.ledger.entry import compute_intervals

    intervals = compute_intervals(entry)
    shown = [one for n, one in enumerate(entry.candidates) if n < top or one.id == entry.id]
    return {
        "u": entry.u,
        "logit": entry.logit,
        "p": entry.probability,
        "rank": entry.rank,
        "surprisal": entry.surprisal,
        "entropy": entry.entropy,
        "kept": entry.kept,
        "note": entry.note,
        "candidates": [
            _describe_token(ledger, one.id)
            | {"logit": one.logit, "score": one.score, "p": one.probability, "interval": intervals[one.id]}
            for one in shown
        ],
        "removed": [
            {
                "sampler": one.sampler,
                "count": one.count,
                "mass": one.mass,
                "tokens": [_describe_token(ledger, id) for id in one.ids],
            }
            for one in entry.removed
        ],
    }
