"""Runs the request of a ledger again, with its model, and compares every number."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace

from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.ledger.make import compute_fingerprint
from pellucid.generation.ledger.replay import Comparison, LedgerReplay, replay_ledger
from pellucid.generation.model_decoder import make_decoder
from pellucid.generation.request import Completion, Request
from pellucid.model import Model, load

MOST_THREADS = 256
"""Threads that a ledger may ask for."""


def open_model_of(ledger: Ledger, name: str | None = None) -> Model:
    """Returns the model of a ledger, or the one of that name, on the ledger's device if there is one here."""
    import torch

    place = name if name is not None else ledger.model.path or ledger.model.name
    device = ledger.model.device
    if device.startswith("cuda") and not torch.cuda.is_available():
        device = "cpu"
    return load(place, device=device, dtype=ledger.model.dtype)


@contextlib.contextmanager
def _use_threads_of(ledger: Ledger) -> Iterator[None]:
    """Computes with the ledger's number of threads, since sums over several threads are added in another
    order."""
    import torch

    before, recorded = torch.get_num_threads(), re.search(r"(?<!\d)(\d+) threads?$", ledger.versions.machine)
    torch.set_num_threads(min(int(recorded[1]), MOST_THREADS) if recorded else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def replay_with(ledger: Ledger, model: Model) -> LedgerReplay:
    """Runs the request of a ledger again and compares every number; the fingerprint of the model as well."""
    import torch

    from pellucid.generation.scheduler import Engine

    def run(request: Request) -> list[Completion]:
        rows = max(request.sampling.n, request.sampling.beams)
        cache = getattr(torch, ledger.model.cache_dtype)
        engine = Engine(
            make_decoder(model),
            model.pretrained.tokenizer,
            stop_ids=ledger.stop_ids,
            slots=rows,
            cache_dtype=cache,
        )
        return engine.add(request).result()

    with _use_threads_of(ledger):
        done = replay_ledger(ledger, run)
    same = Comparison("the model", "fingerprint", ledger.model.fingerprint, compute_fingerprint(model))
    if same.is_exact:
        return replace(done, numbers=done.numbers + 1, exact=done.exact + 1)
    return replace(done, numbers=done.numbers + 1, mismatches=(same, *done.mismatches))
