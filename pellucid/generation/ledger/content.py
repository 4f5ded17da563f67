"""The content of a ledger, everything that decided a text: model, settings, samplers in their order,
seed, prompt, and for every token its entry (`entry.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid.base.formatting import pluralize
from pellucid.generation.context import shorten
from pellucid.generation.ledger.entry import BeamNode
from pellucid.generation.request import Completion
from pellucid.generation.settings.sampling import Sampling


@dataclass(frozen=True)
class LedgerModel:
    """Which model it was, and what its numbers depend on."""

    name: str
    path: str | None
    """The absolute path of its file or folder; None for a model in memory alone."""
    fingerprint: str
    """SHA-256 over the config and, of every weight, the name, the shape and up to `SAMPLED_NUMBERS` evenly
    spaced numbers as the engine holds them. It tells models, versions and trained copies apart; a change to
    other numbers alone is not seen."""
    parameters: int
    vocab_size: int
    context_length: int
    bidirectional_prefix: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    cache_dtype: str = "float32"
    draft: str | None = None
    """The name of the draft model, whose proposals change no token."""


SAMPLED_NUMBERS = 64


@dataclass(frozen=True)
class LedgerSampler:
    """One sampler of the chain."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shortening:
    """A full context: before new token `step`, `dropped` tokens were dropped and the `kept` others read
    again from position 0."""

    choice: int
    step: int
    dropped: int
    kept: int


@dataclass(frozen=True)
class LedgerVersions:
    """What computed it: numbers agree bit for bit where these do, elsewhere within rounding."""

    pellucid: str
    torch: str
    machine: str
    """The processor's family, the vector instructions and the number of threads that torch uses there, or
    the GPU."""


@dataclass(frozen=True)
class LedgerRecord:
    """The record of one request."""

    model: LedgerModel
    versions: LedgerVersions
    prompt: tuple[int, ...]
    sampling: Sampling
    sources: Mapping[str, str]
    """Where each setting came from: "default", "model", "preset balanced", "given"."""
    chain: tuple[LedgerSampler, ...]
    """The samplers in the order in which they ran."""
    stop_ids: tuple[int, ...]
    seed: int
    """The seed that was used, also where none was given."""
    completions: tuple[Completion, ...]
    """The choices; the tree of their beam search is `beams`, not theirs."""
    texts: Mapping[int, str]
    """The text of every token that the ledger mentions, for display: a space is ·."""
    shortenings: tuple[Shortening, ...] = ()
    beams: tuple[BeamNode, ...] = ()

    def read_context(self, choice: int, step: int) -> tuple[int, ...]:
        """Returns the tokens that the model had read when it chose new token `step`: the prompt and the new
        tokens before it, without those that a full context dropped."""
        return follow_context(self.model, self.sampling, self.prompt, self.completions[choice].ids[:step])[0]

    def mentioned_ids(self) -> set[int]:
        """Returns every token that the ledger names."""
        ids = {*self.prompt, *self.stop_ids, *(node.id for node in self.beams)}
        for completion in self.completions:
            ids.update(completion.ids, *(one.proposed for one in completion.speculative))
            for entry in completion.entries:
                ids.update(one.id for one in entry.candidates)
                ids.update(*(removal.ids for removal in entry.removed))
        return ids

    def follow_beam(self, node: int) -> tuple[int, ...]:
        """Returns the new tokens from the first to that node of the beam search."""
        ids = list[int]()
        while node >= 0:
            ids.append(self.beams[node].id)
            node = self.beams[node].parent
        return tuple(reversed(ids))


def follow_context(
    model: LedgerModel, sampling: Sampling, prompt: Sequence[int], ids: Sequence[int]
) -> tuple[tuple[int, ...], list[Shortening]]:
    """Returns the tokens in the context after new tokens `ids`, and what the rule for a full context did
    until then (of choice 0)."""
    rule = (sampling.context, sampling.keep, model.context_length, model.bidirectional_prefix)
    held, cuts = list(prompt), list[Shortening]()
    for step in range(len(ids) + 1):
        held += ids[step - 1 : step] if step else ()
        if len(held) > model.context_length and sampling.context != "refuse":
            before, held = len(held), shorten(held, *rule)
            cuts.append(Shortening(0, step, before - len(held), len(held)))
    return tuple(held), cuts


def describe_versions(device: str) -> LedgerVersions:
    """Returns the versions and the machine that compute here on that device."""
    import platform

    import torch

    import pellucid

    if device.startswith("cuda") and torch.cuda.is_available():
        machine = torch.cuda.get_device_name(device)
    else:
        threads = pluralize(torch.get_num_threads(), "thread")  # which add up in another order
        machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, {threads}"
    return LedgerVersions(pellucid.__version__, str(torch.__version__), machine)
