"""The tree of a beam search as text."""

from collections.abc import Iterator

from pellucid.base.formatting import pluralize
from pellucid.generation.ledger.content import LedgerRecord
from pellucid.generation.ledger.entry import BeamNode
from pellucid.generation.ledger.token_text import token_text


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
