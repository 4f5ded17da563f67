"""The negative log-likelihood and the rank of every counted target of some documents.

    for scores in score_documents(model.module, documents, window=1024, stride=1024):
        scores.nll.mean()

Documents are read one at a time, cut into windows and computed in batches; logits exist for a few rows at a
time, so that memory is bounded by the window.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pellucid.base.errors import ConfigError, UsageError
from pellucid.data.shard import Ids
from pellucid.engine.precision import widen
from pellucid.engine.taps import current_watcher
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.windows import WindowRow, make_batches, make_rows, pad_rows

BATCH_TOKENS = {"cpu": 512, "cuda": 1 << 15}
"""Tokens of a forward pass, by device; a longer window is a pass by itself. On a CPU more tokens leave the
cache and are slower (`benchmarks/evaluation.py`)."""
CHUNK_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits that exist at once, about, by device."""

Floats = NDArray[np.float64]


class TargetScores(NamedTuple):
    """−ln p of each target [N], and its rank [N]: the number of tokens that are more likely; of equally
    likely ones, those with a smaller id rank before it."""

    nll: Floats
    rank: NDArray[np.int32]


@dataclass(frozen=True)
class DocumentScores:
    """The scores of one document, one number for each counted target."""

    name: str
    source: str
    n_bytes: int | None
    """UTF-8 bytes of the text of the targets."""
    log_probability: float | None
    """ln P of that text, where its source knows it."""
    targets: Ids
    """[n] ids."""
    nll: Floats
    """[n] −ln p(target | the tokens before it in its window)."""
    rank: NDArray[np.int32]
    """[n], 0 where the target was the most likely token."""
    context: Ids
    """[n] tokens before the target in its window."""
    document: EncodedDocument
    """With the tokens that do not count."""


class HiddenStates(NamedTuple):
    """The last hidden states of one window of a document, after the final norm, where a target counts."""

    number: int
    """The number of the document, from 0."""
    document: EncodedDocument
    places: Ids
    """[n] the places of the targets in the document's targets ids[1:]."""
    targets: Tensor
    """[n] ids."""
    hidden: Tensor
    """[n C]; the logits are `module.logits(hidden)`."""


Journal = MutableMapping[str, TargetScores]
"""The scores that are already computed, by `hash_inputs`."""


def score_documents(
    module: Transformer,
    documents: Iterable[EncodedDocument],
    *,
    window: int,
    stride: int,
    journal: Journal | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> Iterator[DocumentScores]:
    """Yields the scores of each document, in order; a document without a counted target has none.

    Batches that the `journal` holds are not computed again, and computed ones are added to it.
    `progress` is called with the tokens read by each batch.
    """
    check_causal(module)
    fingerprint = "" if journal is None else hash_model(module)
    begun = dict[int, _Partial]()
    number = 0

    def begin(documents: Iterable[EncodedDocument]) -> Iterator[EncodedDocument]:
        for i, document in enumerate(documents):
            begun[i] = _Partial(document)
            yield document

    for batch in make_batches(make_rows(begin(documents), window, stride), _batch_tokens(module)):
        scores = _score_batch(module, batch, journal, fingerprint)
        first = 0
        for row in batch:
            first = begun[row.number].add(row, scores, first)
        progress(sum(len(row.inputs) for row in batch))
        while number in begun and begun[number].is_complete:
            yield begun.pop(number).finish()
            number += 1
    for i in sorted(begun):
        yield begun.pop(i).finish()


def stream_hidden_states(
    module: Transformer, documents: Iterable[EncodedDocument], *, window: int, stride: int
) -> Iterator[HiddenStates]:
    """Yields the last hidden states of every window of the documents, the windows of a batch after each
    other; a long document comes in several."""
    check_causal(module)
    for batch in make_batches(make_rows(documents, window, stride), _batch_tokens(module)):
        counts = [len(row.counted) for row in batch]
        targets = torch.as_tensor(_read_targets(batch), device=module.device)
        parts = zip(targets.split(counts), compute_hidden(module, batch).split(counts), strict=True)
        for row, (some, hidden) in zip(batch, parts, strict=True):
            yield HiddenStates(row.number, row.document, row.counted, some, hidden)


@torch.no_grad()
def compute_hidden(module: Transformer, rows: list[WindowRow]) -> Tensor:
    """Returns the last hidden states [N C] at the counted targets of a batch, row after row."""
    ids = torch.as_tensor(pad_rows(rows), device=module.device)
    module.check_ids(ids)
    width = ids.shape[1]
    places = [place * width + row.context - 1 for place, row in enumerate(rows)]
    hidden: Tensor = module.hidden_states(ids).flatten(0, 1)
    return hidden[torch.as_tensor(np.concatenate(places), device=module.device)]


@torch.no_grad()
def score_targets(module: Transformer, hidden: Tensor, targets: Tensor) -> TargetScores:
    """Returns the scores of targets [N] after hidden states [N C], a chunk of the logits at a time.

    −ln p = ln Σ e^(y − max y) + max y − y_target; the last three terms are added in float64.
    """
    rows = max(1, CHUNK_LOGITS[_device_kind(module)] // module.config.vocab_size)
    found = [
        _score_chunk(widen(module.logits(some)), wanted[:, None])
        for some, wanted in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    nll, rank = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
    return TargetScores(nll, rank)


def _score_chunk(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns −ln p and rank of the targets [n 1]; overwrites the logits [n V]."""
    chosen = logits.gather(-1, targets)
    largest = logits.amax(-1, keepdim=True)
    rank = (logits > chosen).sum(-1, dtype=torch.int32)
    is_tied = (logits == chosen).sum(-1, dtype=torch.int32) > 1
    for row in is_tied.nonzero()[:, 0].tolist():
        rank[row] += (logits[row, : int(targets[row])] == chosen[row]).sum()
    total = logits.sub_(largest).exp_().sum(-1)
    return total.double().log() + (largest.double() - chosen.double())[:, 0], rank


def check_causal(module: Transformer) -> None:
    """Raises where a token sees later ones: the next token has no likelihood given those before it."""
    if module.config.mask.bidirectional_prefix:
        raise UsageError(
            "a model whose first tokens attend to later ones does not predict a text from left to right, so "
            "that log-likelihoods are not defined: use a model with a causal mask."
        )


def batch_key(fingerprint: str, rows: list[WindowRow]) -> str:
    """Returns the key of the ids and targets of each row."""
    arrays = ((row.inputs, row.context, row.document.ids[1:][row.counted]) for row in rows)
    return hash_inputs(fingerprint, (array for some in arrays for array in some))


def hash_model(module: Transformer) -> str:
    """Returns SHA-256 over all of a model that decides its scores, to the last bit: config, every number of
    every weight, number type, device and threads. An open `edit` has no hash, and is different each time."""
    threads = torch.get_num_threads() if module.device.type == "cpu" else 0
    about = f"{module.config.to_json()} {module.dtype} {module.device.type} {threads} "
    digest = hashlib.sha256(about.encode())
    for name, weight in module.state_dict().items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)} ".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    if (watcher := current_watcher(module)) is not None and watcher.edits:
        digest.update(os.urandom(32))
    return digest.hexdigest()


def hash_inputs(fingerprint: str, arrays: Iterable[ArrayLike]) -> str:
    """Returns SHA-256 over a model's `hash_model` and arrays of ids: the key of their scores."""
    digest = hashlib.sha256(fingerprint.encode())
    for array in arrays:
        ids = np.ascontiguousarray(array, np.int64)
        digest.update(len(ids).to_bytes(8, "little"))
        digest.update(ids.tobytes())
    return digest.hexdigest()


def _score_batch(
    module: Transformer, rows: list[WindowRow], journal: Journal | None, fingerprint: str
) -> TargetScores:
    key = "" if journal is None else batch_key(fingerprint, rows)
    if journal is not None and key in journal:
        return journal[key]
    targets = torch.as_tensor(_read_targets(rows), device=module.device)
    scores = score_targets(module, compute_hidden(module, rows), targets)
    if not np.isfinite(scores.nll).all():
        raise ConfigError(
            f"the log-likelihood of {rows[0].document.name} is not finite: the model's logits have a NaN or "
            "an infinity. Try another number type, such as float32."
        )
    if journal is not None:
        journal[key] = scores
    return scores


def _read_targets(rows: list[WindowRow]) -> Ids:
    return np.concatenate([row.document.ids[1:][row.counted] for row in rows])


def _batch_tokens(module: Transformer) -> int:
    return BATCH_TOKENS[_device_kind(module)]


def _device_kind(module: Transformer) -> str:
    return "cpu" if module.device.type == "cpu" else "cuda"


class _Partial:
    """The scores of a document whose windows are not all computed."""

    def __init__(self, document: EncodedDocument) -> None:
        size = len(document.is_counted)
        self.document, self.missing = document, int(document.is_counted.sum())
        self.nll, self.rank, self.context = np.zeros(size), np.zeros(size, np.int32), np.zeros(size, np.int64)

    @property
    def is_complete(self) -> bool:
        return not self.missing

    def add(self, row: WindowRow, scores: TargetScores, first: int) -> int:
        """Takes the row's scores, from `first` on, and returns where those of the next row begin."""
        places, last = row.counted, first + len(row.counted)
        self.nll[places], self.rank[places] = scores.nll[first:last], scores.rank[first:last]
        self.context[places] = row.context
        self.missing -= len(places)
        return last

    def finish(self) -> DocumentScores:
        document, here = self.document, self.document.is_counted
        return DocumentScores(
            document.name,
            document.source,
            document.n_bytes,
            document.log_probability,
            document.ids[1:][here],
            self.nll[here],
            self.rank[here],
            self.context[here],
            document,
        )
