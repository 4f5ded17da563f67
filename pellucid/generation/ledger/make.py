"""The ledger of a model's text, made from what the engine returns."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pellucid.base.dtypes import dtype_name
from pellucid.formats.pretrained import parameter_count
from pellucid.generation.ledger.content import (
    SAMPLED_NUMBERS,
    LedgerModel,
    describe_versions,
    follow_context,
)
from pellucid.generation.ledger.described_chain import describe_chain
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.model_decoder import make_decoder
from pellucid.generation.request import Completion, Request

if TYPE_CHECKING:
    from pellucid.model import Model


def make_ledger(
    model: "Model",
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


def describe_model(model: "Model", cache_dtype: str | None = None, draft: str | None = None) -> LedgerModel:
    """Returns which model it is, and how it computes."""
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


def compute_fingerprint(model: "Model") -> str:
    """Returns SHA-256 over the config and, of every weight, the name, the shape and evenly spaced numbers as
    the engine holds them: a few milliseconds for any size of model."""
    digest = hashlib.sha256(model.config.to_json().encode())
    for name, value in sorted(model.module.state_dict().items()):
        flat = value.detach().flatten()
        some = flat[:: max(1, len(flat) // SAMPLED_NUMBERS)][:SAMPLED_NUMBERS]
        digest.update(f"{name} {tuple(value.shape)} ".encode())
        digest.update(some.double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _show(model: "Model", id: int) -> str:
    reader = model.pretrained.tokenizer
    return reader.visible(id) if reader and id < reader.vocab_size else f"#{id}"
