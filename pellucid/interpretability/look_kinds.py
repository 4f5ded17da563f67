"""The views of `pellucid.look` by name, and their settings: the keywords of each view's function."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_origin

from pellucid.base.errors import UsageError, unknown
from pellucid.base.schema import Field, fields_of_signature
from pellucid.report.items import View

SEVERAL_PROMPTS = ("prompts", "texts")
"""Settings that are further texts, or ids."""
IN_PLACE_OF_A_PROMPT = ("texts", "tokens", "analogy")
"""Settings that say what a view is about, so that it needs no prompt."""
HIDDEN = ("progress", "translate")
"""Parameters that `look` fills in itself."""


@dataclass(frozen=True)
class LookKind:
    """A view by its name: the function of `interpretability/` that makes it, and what it shows."""

    function: str
    meaning: str
    needs_prompt: bool = False
    """True where only the user can say what it is about; another view reads a text of its own."""
    reads_prompt: bool = True

    def lacks_prompt(self, settings: Iterable[str]) -> bool:
        """Returns whether it reads a text, and none of these settings stands in place of it."""
        others = [name for name in settings if name in IN_PLACE_OF_A_PROMPT]
        return self.reads_prompt and not any(name in self.parameters() for name in others)

    def find(self) -> Callable[..., View]:
        """Returns the function; its module is imported here."""
        module, _, name = self.function.partition(":")
        found: Callable[..., View] = getattr(importlib.import_module(module), name)
        return found

    def parameters(self) -> dict[str, Field]:
        """Returns the keywords of the function, which follow the prompted model."""
        return {field.name: field for field in fields_of_signature(self.find(), 1)}

    def settings(self) -> dict[str, Field]:
        """Returns the keywords that a user may give."""
        return {name: one for name, one in self.parameters().items() if name not in HIDDEN}


LOOKS: Mapping[str, LookKind] = {
    "lens": LookKind(
        "pellucid.interpretability.lens:view_lens", "what each layer would predict: the logit lens"
    ),
    "attribution": LookKind(
        "pellucid.interpretability.attribution:view_attribution",
        "what each head and MLP adds to a logit",
    ),
    "attention": LookKind(
        "pellucid.interpretability.attention:view_attention", "entropy, distance and sink of every head"
    ),
    "heads": LookKind(
        "pellucid.interpretability.heads:view_heads",
        "what each head attends to, and the loss without it",
    ),
    "patching": LookKind(
        "pellucid.interpretability.patching:view_patching",
        "which value carries the difference of two prompts",
        needs_prompt=True,
    ),
    "paths": LookKind(
        "pellucid.interpretability.paths:view_paths",
        "the effect of one value through another alone",
        needs_prompt=True,
    ),
    "probes": LookKind(
        "pellucid.interpretability.probes:view_probes",
        "what a linear probe reads from each layer",
        reads_prompt=False,
    ),
    "geometry": LookKind(
        "pellucid.interpretability.geometry:view_geometry", "neighbors, analogies and PCA of the embedding"
    ),
    "diagnostics": LookKind(
        "pellucid.interpretability.diagnostics:view_diagnostics",
        "signs of collapse: ranks, norms, dead units",
    ),
    "search": LookKind(
        "pellucid.interpretability.search:view_search",
        "the next token as a maximum inner product search",
    ),
}


def check_settings(kinds: Sequence[str], settings: Iterable[str]) -> None:
    """Raises where a setting belongs to none of the views."""
    for name in settings:
        if any(name in LOOKS[kind].parameters() for kind in kinds):
            continue
        if others := [kind for kind, look in LOOKS.items() if name in look.parameters()]:
            raise UsageError(f"{name} is a setting of {', '.join(others)}: show it, or omit {name}.")
        known = {known for kind in kinds for known in LOOKS[kind].settings()}
        raise UsageError(unknown("setting", name, sorted(known)))


def read_settings(kinds: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Returns settings that are written as KEY=VALUE, each in the type of the view's parameter.

    A list is separated by commas, but for one of texts, which have commas of their own; a key of a list may
    come several times.
    """
    known: dict[str, Field] = {}
    for kind in kinds:
        if kind not in LOOKS:
            raise UsageError(unknown("view", kind, LOOKS))
        known |= LOOKS[kind].settings()
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text} must be KEY=VALUE.")
        if name not in known:
            raise UsageError(unknown("setting", name, sorted(known)))
        read = _read_value(known[name], value)
        if name in found and not isinstance(read, list):
            raise UsageError(f"--set {name} is given twice: give it once.")
        found[name] = [*found[name], *read] if name in found else read
    return found


def _read_value(field: Field, text: str) -> Any:
    if field.name in SEVERAL_PROMPTS:
        return [text]
    if get_origin(field.type) in (Sequence, list):
        return [part for part in text.split(",") if part]
    return field.read(text, text=True) if field.type in (int, float) else text
