"""The ledger of a generated text: made from what the engine returns, printed as a table, saved as a file,
shown as a page, replayed, and run again with its model."""

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from pellucid.base.arguments import check_bool, check_int, check_path
from pellucid.base.dtypes import dtype_name
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.explanation.trace import IN_PYTHON, More
from pellucid.formats.pretrained import parameter_count
from pellucid.generation.ledger.content import (
    SAMPLED_NUMBERS,
    LedgerModel,
    LedgerRecord,
    describe_versions,
    follow_context,
)
from pellucid.generation.ledger.file import check_ledger_output, read_ledger, to_data, write_ledger
from pellucid.generation.ledger.page import check_page_output, make_page, write_page
from pellucid.generation.ledger.replay import Comparison, LedgerReplay, describe_chain, replay_ledger
from pellucid.generation.ledger.text import format_ledger, format_token
from pellucid.generation.request import Completion, Request
from pellucid.model import Model, load

MOST_THREADS = 256
"""Threads that a ledger may ask for."""


@dataclass(frozen=True, repr=False)
class Ledger(LedgerRecord):
    """How every token of a text was chosen. Print it to read it.

    `save` writes a file that `pellucid replay` recomputes and `pellucid explain` follows into the model.
    """

    @classmethod
    def read(cls, path: str | Path) -> "Ledger":
        """Returns the ledger of a file."""
        return read_ledger(Path(check_path("path", path)), cls)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Writes the ledger as a .json file, or as a page where the path ends in .html; `force` replaces one
        of the same kind."""
        file, force = Path(check_path("path", path)), check_bool("force", force)
        (write_page if file.suffix == ".html" else write_ledger)(self, file, force)

    @staticmethod
    def check_output(path: str | Path, force: bool = False) -> None:
        """Raises unless a ledger, or its page, may be saved there; call it before the work."""
        file = Path(check_path("path", path))
        (check_page_output if file.suffix == ".html" else check_ledger_output)(file, force)

    def why(self, token: int, choice: int = 0) -> str:
        """Returns how one token was chosen, as text. Tokens are numbered from 1."""
        return "\n".join(format_token(self, check_int("token", token), check_int("choice", choice)))

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the ledger as lines of text, and how to follow one token."""
        yield from str(self).splitlines()
        yield "one token, and on into the model: --token N (token=N in Python)"

    def to_data(self) -> dict[str, Any]:
        """Returns the ledger as its file holds it."""
        return to_data(self)  # type: ignore[no-any-return]

    def replay(self) -> LedgerReplay:
        """Recomputes every draw, from the seed, and what else follows from the recorded numbers."""
        return replay_ledger(self)

    def _repr_html_(self) -> str:
        style = "width:100%;height:40em;border:0"
        return f'<iframe style="{style}" sandbox="allow-scripts" srcdoc="{escape(make_page(self))}"></iframe>'

    def __str__(self) -> str:
        return "\n".join(format_ledger(self))

    def __repr__(self) -> str:
        count = pluralize(sum(len(completion.ids) for completion in self.completions), "token")
        return escape_controls(
            f"<Ledger of {count}: {self.model.name}, {self.model.dtype} on {self.model.device}>", keep=""
        )


# ---- made


def make_ledger(
    model: Model,
    request: Request,
    completions: Sequence[Completion],
    *,
    sources: Mapping[str, str] | None = None,
    cache_dtype: str | None = None,
    draft: str | None = None,
) -> Ledger:
    """Returns the ledger of a request that had `ledger=True`.

    `sources` says where each setting came from, `cache_dtype` is the type of the cache where it is not the
    model's, and `draft` the name of the draft model.
    """
    sampling = request.sampling
    seed = next((one.seed for one in completions if one.seed is not None), sampling.seed or 0)
    stop_ids = model.eos_ids if sampling.stop_ids is None else sampling.stop_ids
    about = describe_model(model, cache_dtype, draft)
    tree = completions[0].beams if completions else ()
    cuts = [
        replace(cut, choice=one.choice)
        for one in completions
        for cut in follow_context(about, sampling, request.prompt, one.ids[:-1])[1]
    ]
    choices = tuple(replace(one, beams=(), logprobs=(), top_logprobs=()) for one in completions)
    ledger = Ledger(
        model=about,
        versions=describe_versions(model.device),
        prompt=tuple(request.prompt),
        sampling=sampling,
        sources=dict(sources or {}),
        chain=describe_chain(sampling),
        stop_ids=tuple(stop_ids),
        seed=seed,
        completions=choices,
        texts={},
        shortenings=tuple(cuts),
        beams=tree,
    )
    return replace(ledger, texts={id: _show(model, id) for id in sorted(ledger.mentioned_ids())})


def describe_model(model: Model, cache_dtype: str | None = None, draft: str | None = None) -> LedgerModel:
    """Returns which model it is, and how it computes."""
    from pellucid.generation.decoders import make_decoder

    path = model.pretrained.provenance.path
    prefix = model.config.mask.bidirectional_prefix
    return LedgerModel(
        name=model.short_name,
        path=str(path.resolve()) if path.exists() else None,
        fingerprint=compute_fingerprint(model),
        parameters=parameter_count(model.config.parameters()),
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        bidirectional_prefix=int(prefix),
        dtype=model.dtype,
        device=model.device,
        cache_dtype=cache_dtype or dtype_name(make_decoder(model).cache_dtype),
        draft=draft,
    )


def compute_fingerprint(model: Model) -> str:
    """Returns SHA-256 over the config and, of every weight, the name, the shape and evenly spaced numbers as
    the engine holds them: a few milliseconds for any size of model."""
    digest = hashlib.sha256(model.config.to_json().encode())
    for name, value in sorted(model.module.state_dict().items()):
        flat = value.detach().flatten()
        some = flat[:: max(1, len(flat) // SAMPLED_NUMBERS)][:SAMPLED_NUMBERS]
        digest.update(f"{name} {tuple(value.shape)} ".encode())
        digest.update(some.double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _show(model: Model, id: int) -> str:
    reader = model.pretrained.tokenizer
    return reader.visible(id) if reader and id < reader.vocab_size else f"#{id}"


# ---- run again


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

    from pellucid.generation.decoders import make_decoder
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
