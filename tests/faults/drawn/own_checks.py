"""Where a finding names a mutation: by file, the checks that are for its code, and the places that they name.

A finding of another check, or at another place, has still caught it: elsewhere.
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

from pellucid.verification.checks.catalogue import select_checks
from pellucid.verification.checks.training.runs import CHECKS as RUN_CHECKS
from pellucid.verification.verdict import Finding
from tests.faults.fault import FOUND

CACHE = frozenset((
    "cached", "chunked prefill", "scheduled", "scheduled together", "decoded", "long prompt",
    "unequal lengths", "int8 cache", "prefix reuse", "far decoding", "repeated", "proposals", "generated",
))  # fmt: skip
ENGINE = CACHE | {
    *("engine weights", "specification", "gradients", "float32", "bfloat16", "float16", "far positions"),
    *("fused", "batched", "padded", "packed rows", "training pass", "edited", "backward paths"),
    *("finite differences", "transformers", "llama.cpp"),
}
LOSS = frozenset({"specification", "gradients", "training pass", "backward paths", "finite differences"})
NATIVE = frozenset({"native decoded", "native prompt", "native scheduled", "native far"})
TEXTS = frozenset((
    "generated", "sampled", "seeds", "figures", "repeated", "proposals", "prefix reuse", "constrained",
    "far decoding", "scheduled", "scheduled together",
))  # fmt: skip
READ = frozenset((
    "step batch", "step loss", "next checkpoint", "epoch targets", "validation rows", "validation loss",
    "log figures",
))  # fmt: skip
EVALUATED = frozenset({"validation loss", "next checkpoint", "log figures"})
SAVED = frozenset({"step weights", "step loss", "next checkpoint", "saved", "weights", "file weights"})
STEP = frozenset(check.name for check in RUN_CHECKS)


class Own(NamedTuple):
    files: str
    """A pattern of paths below the package."""
    checks: frozenset[str]
    at: str = ""
    """A regular expression that the place matches somewhere."""


ATTENTION = r"attn|position|^scheduled|cache"
OWN = (
    Own("engine/norms.py", ENGINE, "norm"),
    *(Own(f"engine/{name}.py", ENGINE, "mlp") for name in ("mlps", "activations")),
    *(Own(f"engine/{name}.py", ENGINE, ATTENTION) for name in ("attention", "tables")),
    *(Own(f"engine/{name}.py", ENGINE, ATTENTION) for name in ("positions", "features", "attentions/*")),
    *(Own(f"engine/{name}.py", ENGINE) for name in ("transformer", "block", "linear", "residuals", "caps")),
    *(Own(f"engine/{name}.py", ENGINE) for name in ("precision", "quantized_tensor", "lora")),
    *(Own(f"engine/{name}.py", CACHE) for name in ("cache", "layer_cache")),
    *(Own(f"engine/{name}.py", LOSS) for name in ("loss", "chunked_loss")),
    Own("engine/*.py", STEP),
    Own("engine/cpu/*", NATIVE),
    Own("generation/samplers/*", TEXTS - {"constrained", "prefix reuse"}),
    Own("generation/ledger/*", TEXTS - {"constrained", "prefix reuse"}),
    Own("generation/settings/*", TEXTS),
    Own("generation/strategies/*", TEXTS - {"constrained"}),
    Own("generation/constraints/*", frozenset({"constrained"})),
    *(Own(f"generation/{name}.py", TEXTS) for name in ("scheduler", "handle", "request", "output")),
    *(Own(f"generation/{name}.py", TEXTS) for name in ("context", "decoders", "generate", "chat")),
    Own("generation/answers/*", frozenset({"figures"})),
    Own("generation/slots.py", CACHE),
    *(Own(f"training/{name}.py", STEP - {"validation loss"}) for name in ("step", "objective", "state")),
    *(Own(f"training/{name}.py", STEP - {"validation loss"}) for name in ("prefetch", "weights")),
    *(
        Own(f"training/{name}.py", frozenset({"step update", "step weights", "step clipping", "step norm"}))
        for name in ("optimizers",)
    ),
    Own("training/evaluate.py", EVALUATED),
    Own("evaluation/*", frozenset({"validation loss"})),
    Own("data/*", READ),
    Own("training/saving/*", SAVED),
    *(Own(f"training/{name}.py", STEP) for name in ("run", "resume", "start", "request", "events")),
    Own("training/history/*", STEP),
    Own("verification/runs/*", STEP),
    Own("training/recipe/*", STEP),
)


def list_own(file: str) -> frozenset[str]:
    """Returns the names of the checks that are for a file."""
    return frozenset[str]().union(*(own.checks for own in _rows(file)))


def is_own(file: str, finding: Finding) -> bool:
    """Whether a finding names what was mutated: its check and place, or an error in its file."""
    if finding.verdict not in FOUND:
        return False
    if finding.at.startswith(f"{_inside(file)}:"):
        return True
    return any(finding.name in own.checks and re.search(own.at, finding.at) for own in _rows(file))


def list_known() -> frozenset[str]:
    """Returns the names of all checks."""
    return STEP | {check.name for check in select_checks(False)}


def _rows(file: str) -> list[Own]:
    return [own for own in OWN if fnmatchcase(_inside(file), own.files)]


def _inside(file: str) -> str:
    return file.removeprefix("pellucid/")
