"""Random models that are verified, and the checks by name."""

from typing import Any

from pellucid.model import Model
from pellucid.verification.checks.catalogue import CHECKS
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.verdict import Finding
from tests.formats.gguf import random_models


def find_check(name: str) -> Check[Subject]:
    return next(check for check in CHECKS if check.name == name)


def make_subject(
    gain: float = 1.0, dtype: str = "float32", has_tokenizer: bool = True, **changes: Any
) -> Subject:
    """Returns a random Llama with other choices, its weights multiplied by `gain`."""
    shape = random_models.LLAMA | changes
    weights = {name: gain * array for name, array in random_models.model(shape).weights.items()}
    more: dict[str, Any] = {} if has_tokenizer else {"tokenizer": None}
    return Subject(Model(random_models.model(shape, weights=weights, **more), dtype=dtype))


def measure(check: str, **changes: Any) -> Finding:
    """Returns what a check finds of such a model."""
    return find_check(check).measure(make_subject(**changes))
