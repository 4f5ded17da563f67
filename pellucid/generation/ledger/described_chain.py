"""The chain of samplers as a ledger records it: what the settings make of it."""

from pellucid.generation.ledger.content import LedgerSampler
from pellucid.generation.ledger.file import to_data
from pellucid.generation.samplers.chain import Chain
from pellucid.generation.settings.conflicts import CONSTRAINTS
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.samplers import Sampler


def describe_chain(sampling: Sampling) -> tuple[LedgerSampler, ...]:
    """Returns the samplers in their order; a constraint, which a request compiles, with what it was given."""
    given = {name: value for name in CONSTRAINTS if (value := getattr(sampling, name)) is not None}
    chain = Chain(sampling, (), 0, frozenset(), 0)
    samplers = [*chain.samplers, *([Sampler.read("constraint")] if given else [])]
    tables = [sampler.to_dict() for sampler in sorted(samplers, key=lambda sampler: sampler.order)]
    return tuple(
        LedgerSampler(kind, given if kind == "constraint" else to_data(table))
        for table in tables
        if (kind := table.pop("kind"))
    )
