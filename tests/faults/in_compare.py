"""Faults of another program, whose arrays `compare` judges: every value recorded, or the hidden states alone.

The program is a Llama in plain PyTorch; each fault replaces one of its parts, in each type in which it must
be named. What hidden states cannot decide is in `tests/verification/test_decidable.py`.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pellucid.verification.verdict import Finding
from tests.faults.fault import Patch, fault
from tests.faults.subjects import SUBJECTS, Subject
from tests.verification.stranger_llama import BUGS, EVERYTHING, HIDDEN_STATES, TYPES, Parts, compare_run

PLANTED: dict[str, Parts] = {}
"""The part that is replaced, under the key "parts"."""


def judge(type: str, keep: re.Pattern[str], _: Path, check: str | None) -> Iterator[Finding]:
    """Yields one finding: what `compare` says about the other program's run."""
    report = compare_run(type, PLANTED.get("parts"), keep)
    failures = [value for value in report.values if value.verdict.is_failure]
    at = failures[0].place if failures else ""
    yield Finding(report.verdict, str(report).partition("\n")[0], at, str(report), "compare")


KEPT = {"everything": EVERYTHING, "hidden states": HIDDEN_STATES}
SUBJECTS |= {
    f"stranger's {kept} in {type}": Subject(lambda _: None, partial(judge, type, keep))
    for type in TYPES
    for kept, keep in KEPT.items()
}

WIDE, NARROW = ("float32",), ("bfloat16", "float16")
ALL = (*WIDE, *NARROW)
NORM, ROTATED, SCORES, MASKED = (
    "embedded … blocks.0.attn_norm.out",
    "blocks.0.attn.q_rot",
    "blocks.0.attn.scores",
    "blocks.0.attn.masked",
)
PATTERN, STREAM, LAST = (
    "blocks.0.attn.pattern",
    "embedded … blocks.0.resid_post",
    "blocks.1.resid_post … final_norm.out",
)

AT: dict[str, tuple[str, tuple[str, ...], str, tuple[str, ...]]] = {
    "eps of 1e-3": (NORM, ALL, STREAM, ALL),
    "rope base": (ROTATED, ALL, STREAM, ALL),
    "rope in pairs": (ROTATED, ALL, STREAM, ALL),
    "rope reversed": (ROTATED, ALL, STREAM, ALL),
    "rope counted from one": (ROTATED, ALL, "", ()),
    "queries one position ahead": (ROTATED, ALL, STREAM, ALL),
    "rope angles in bfloat16": (ROTATED, ALL, STREAM, WIDE),
    "rope angles in float16": (ROTATED, ("float32", "float16"), STREAM, WIDE),
    "rope omitted": (ROTATED, ALL, STREAM, ALL),
    "rope of few bits": (ROTATED, ALL, STREAM, WIDE),
    "rope only of the queries": ("blocks.0.attn.k_rot", ALL, STREAM, ALL),
    "heads repeated in turn": (SCORES, ALL, STREAM, ALL),
    "no scale": (SCORES, ALL, STREAM, ALL),
    "scale by the width": (SCORES, ALL, STREAM, ALL),
    "scale 5 % off": (SCORES, ALL, STREAM, ALL),
    "mask one ahead": (MASKED, ALL, STREAM, ALL),
    "no mask": (MASKED, ALL, STREAM, ALL),
    "mask without the diagonal": (MASKED, ALL, STREAM, ALL),
    "mask of -1e4": (MASKED, ALL, "", ()),
    "softmax over the queries": (PATTERN, ALL, STREAM, ALL),
    "softmax accumulated in type": (PATTERN, NARROW, "", ()),
    "norm accumulated in type": (NORM, NARROW, "", ()),
    "norm in type": (NORM, NARROW, "", ()),
    "softmax in type": (PATTERN, NARROW, "", ()),
    "products accumulated in type": ("blocks.0.attn.q", NARROW, "logits", NARROW),
    "layer norm": (NORM, ALL, STREAM, ALL),
    "norm by n - 1": (NORM, ALL, STREAM, WIDE),
    "gain of 1 + weight": (NORM, ALL, STREAM, ALL),
    "final norm omitted": (LAST, ALL, LAST, ALL),
    "gelu": ("blocks.0.mlp.act", ALL, STREAM, ALL),
    "gate and up swapped": ("blocks.0.mlp.act", ALL, STREAM, ALL),
    "output transposed": ("blocks.0.attn_out", ALL, STREAM, ALL),
    "heads joined by channel": ("blocks.0.attn_out", ALL, STREAM, ALL),
    "embedding scaled": ("embedded", ALL, "embedded", ALL),
    "residual forgotten": ("blocks.0.resid_mid", ALL, STREAM, ALL),
    "residual after the norm": ("blocks.0.resid_mid", ALL, STREAM, ALL),
}  # fmt: skip
"""Each bug with the place that names it and the types in which it must, where everything is recorded, and
where only the hidden states are."""
assert AT.keys() == BUGS.keys()


def plant(bug: str, kept: str, type: str) -> Callable[[Patch], None]:
    """Returns the function that plants a bug in the other program, with the name of the fault."""

    def planted(patch: Patch) -> None:
        patch.setitem(PLANTED, "parts", BUGS[bug])

    planted.__name__ = f"{re.sub(r'[^a-z0-9]+', '_', bug)}_in_{type}_by_{kept.replace(' ', '_')}"
    planted.__doc__ = f"Another program in {type}, of which {kept} are recorded: {bug}."
    return planted


for bug, (place, types, hidden_place, hidden_types) in AT.items():
    for kept, at, wanted in (("everything", place, types), ("hidden states", hidden_place, hidden_types)):
        for type in wanted:
            fault("compare", subject=f"stranger's {kept} in {type}", check="compare", at=at)(
                plant(bug, kept, type)
            )
