"""Models at the edges: what a check of generation or of a cache says of them, or why it is not made."""

import re
from typing import Any

import pytest

from tests.verification.checks.subjects import measure

WINDOW = {"mask": {"kind": "window", "size": 9}}
AHEAD, PREFIX = {"mask": "none"}, {"mask": {"kind": "prefix", "length": 4}}
MUTE: dict[str, Any] = {"has_tokenizer": False}
MASKS = "^488 masks; it has no tokenizer; "
UNALIGNED = {"qk_norm": "rms_norm", "positions": "alibi", "n_kv_head": 1, "d_head": 6, "d_model": 16}
"""A kernel sums the products of an address that is a multiple of 16 bytes in another order."""
EDGES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("constrained", MUTE, "equal", f"{MASKS}.*80 texts of 40 constraints$"),
    ("constrained", MUTE | {"context_length": 9}, "equal", f"{MASKS}.*50 texts of 25 constraints$"),
    ("constrained", MUTE | {"context_length": 3}, "equal", f"{MASKS}.*its context has no room for a text$"),
    ("constrained", MUTE | {"vocab_size": 20}, "equal", f"{MASKS}.*no texts: they take 111 tokens, .* 20$"),
    ("constrained", MUTE | AHEAD, "equal", f"{MASKS}.*its mask is not causal, so it cannot generate$"),
    ("figures", {"dtype": "float32"}, "equal", "8 tokens"),
    ("figures", {"dtype": "bfloat16"}, "equal", "8 tokens"),
    ("figures", {"dtype": "float16"}, "equal", "8 tokens"),
    ("figures", MUTE | {"vocab_size": 1}, "equal", ""),
    ("figures", MUTE | {"vocab_size": 2}, "equal", ""),
    ("figures", MUTE | {"vocab_size": 3}, "equal", ""),
    ("figures", AHEAD, "skipped", "causal"),
    ("figures", {"context_length": 1}, "skipped", "room"),
    ("generated", AHEAD, "skipped", ""),
    ("generated", MUTE | {"gain": 1e3, "dtype": "float16", "norm": "none"}, "noise|skipped", "not finite"),
    ("prefix reuse", {"context_length": 26}, "equal", "^6 prompts, 70 tokens reused in chunks of 10$"),
    ("prefix reuse", {"context_length": 10}, "equal", "^5 prompts, 12 tokens reused in chunks of 2$"),
    ("prefix reuse", AHEAD, "skipped", "bidirectional"),
    ("prefix reuse", WINDOW, "skipped", "cannot be cut"),
    ("prefix reuse", {"context_length": 9}, "skipped", "room"),
    ("proposals", {}, "equal", "^32 texts of 24 tokens"),
    ("proposals", {"context_length": 9}, "equal", "^7 texts of 5 tokens"),
    ("proposals", AHEAD, "skipped", "bidirectional"),
    ("proposals", PREFIX, "skipped", "bidirectional"),
    ("proposals", WINDOW, "skipped", "forget"),
    ("proposals", {"context_length": 6}, "skipped", "room"),
    ("repeated", {"n_layer": 2, "dtype": "float32"}, "equal", "3 of 3 texts in float32"),
    ("repeated", {"n_layer": 2, "dtype": "bfloat16"}, "equal", "3 of 3 texts in float32"),
    ("repeated", {"n_layer": 2, "dtype": "float16"}, "equal", "3 of 3 texts in float32"),
    ("repeated", {"n_layer": 2, "dropout": "bernoulli"}, "equal", ""),
    ("repeated", AHEAD, "equal", "logits and scores"),
    ("repeated", {"context_length": 1}, "equal", "logits and scores"),
    ("repeated", UNALIGNED | {"context_length": 8}, "equal", r"\(heads of 6 numbers are not aligned\)"),
    ("sampled", AHEAD, "skipped", "^its "),
    ("sampled", {"context_length": 1}, "skipped", "^its "),
    ("seeds", MUTE, "equal", "^10 texts"),
    ("seeds", MUTE | {"vocab_size": 2}, "equal", "^10 texts"),
    ("seeds", MUTE | {"vocab_size": 1}, "equal", "^10 sequences of u"),
    ("seeds", MUTE | {"context_length": 2}, "equal", "^10 sequences of u"),
    ("seeds", MUTE | AHEAD, "skipped", "causal"),
    ("seeds", MUTE | {"context_length": 1}, "skipped", "room"),
    ("unequal lengths", {}, "equal", "18 last tokens$"),
    ("unequal lengths", {"context_length": 4}, "equal", "18 last tokens$"),
    ("unequal lengths", {"context_length": 5}, "equal", "18 last tokens$"),
    ("unequal lengths", {"mask": {"kind": "window", "size": 3}}, "equal", "18 last tokens$"),
    ("unequal lengths", {"mask": {"kind": "sinks", "tokens": 2, "size": 3}}, "equal", "18 last tokens$"),
    ("unequal lengths", {"attention": "linear_elu", "positions": "none"}, "equal", "18 last tokens$"),
    ("unequal lengths", AHEAD, "skipped", "bidirectional"),
    ("unequal lengths", {"context_length": 3}, "skipped", "room"),
)


@pytest.mark.parametrize(("check", "changes", "verdict", "measured"), EDGES, ids=str)
def test_a_model_at_an_edge_is_healthy_or_has_a_reason(
    check: str, changes: dict[str, Any], verdict: str, measured: str
) -> None:
    finding = measure(check, **{"n_layer": 1} | changes)
    assert re.fullmatch(verdict, finding.verdict), f"{finding.at}: {finding.message}"
    assert re.search(measured, finding.measured)
