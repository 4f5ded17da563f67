"""Scores of documents: the log-likelihoods of `Model.score` and of `transformers`, each target once."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError, UsageError
from pellucid.engine.taps import edit
from pellucid.evaluation import scoring
from pellucid.evaluation.documents import EncodedDocument, read_documents
from pellucid.evaluation.scoring import (
    DocumentScores,
    Journal,
    TargetScores,
    score_documents,
    score_targets,
    stream_hidden_states,
)
from pellucid.model import Model
from tests.evaluation.small_models import make_model, with_bos, write

TEXT = "the cat sat on a naïve mat — 42 times"


def make_documents(vocab_size: int, sizes: list[int], seed: int = 0) -> list[EncodedDocument]:
    """Documents of random ids, of whose targets about three quarters count."""
    random = np.random.default_rng(seed)
    return [
        EncodedDocument(f"d{i}", random.integers(0, vocab_size, n), random.random(max(0, n - 1)) < 0.75, n)
        for i, n in enumerate(sizes)
    ]


def score(
    model: Model, documents: list[EncodedDocument], window: int = 32, stride: int = 32
) -> list[DocumentScores]:
    return list(score_documents(model.module, documents, window=window, stride=stride))


@pytest.mark.parametrize("has_bos", [False, True])
def test_a_text_that_fits_has_the_scores_of_the_model(tmp_path: Path, has_bos: bool) -> None:
    model = with_bos(make_model()) if has_bos else make_model()
    (found,) = score(model, list(read_documents(write(tmp_path, a=TEXT), model.pretrained)))
    wanted = model.score(TEXT)
    assert found.targets.tolist() == wanted.ids[1:]
    assert found.nll == pytest.approx(
        [-known for known in wanted.logprobs[1:] if known is not None], abs=1e-5
    )
    assert found.context.tolist() == list(range(1, len(wanted)))


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_every_target_has_the_likelihood_of_its_own_window(stride: int) -> None:
    model = make_model().module.double()
    (document,) = make_documents(300, [30])
    (found,) = score_documents(model, [document], window=8, stride=stride)
    places = np.flatnonzero(document.is_counted)
    assert found.targets.tolist() == document.ids[1:][places].tolist()
    for place, context, nll, rank in zip(places, found.context, found.nll, found.rank, strict=True):
        before = document.ids[place + 1 - context : place + 1]
        log_probs = torch.log_softmax(model(torch.tensor(before)[None])[0, -1].detach(), -1)
        assert nll == pytest.approx(-float(log_probs[document.ids[place + 1]]), abs=1e-12)
        assert rank == int((log_probs > log_probs[document.ids[place + 1]]).sum())
        assert context <= 8 and (place < 8 or context > 8 - stride)


def test_a_document_has_the_same_scores_beside_any_others() -> None:
    model = make_model()
    documents = make_documents(300, [5, 90, 2, 1, 0, 33, 64, 7] * 4)
    together = score(model, documents, 16, 12)
    assert [one.name for one in together] == [one.name for one in documents]
    for document, found in zip(documents, together, strict=True):
        (alone,) = score(model, [document], 16, 12)
        assert found.nll == pytest.approx(alone.nll, abs=1e-5)
        assert np.array_equal(found.rank, alone.rank) and np.array_equal(found.context, alone.context)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_log_likelihoods_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    from pellucid.model import load
    from tests.formats.huggingface.models import CONTEXT, random_model

    theirs, write_folder = random_model(family, 0, **{CONTEXT[family]: 32})
    ours = load(write_folder(tmp_path, dtype="float32"))
    theirs = theirs.float()
    (document,) = make_documents(ours.config.vocab_size, [30])
    (found,) = score(ours, [document])
    with torch.no_grad():
        logits = theirs(torch.tensor(document.ids[:-1])[None]).logits[0]
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor(document.ids[1:]), reduction="none")
    assert found.nll == pytest.approx(wanted.numpy()[document.is_counted], abs=1e-4)


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_log_likelihoods_of_a_real_model_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from pellucid.model import load

    ours = load(os.environ["PELLUCID_SMOLLM2"])
    ours.save_pretrained(tmp_path / "theirs")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32).eval()
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")[:800]
    (document,) = read_documents(write(tmp_path, a=text), ours.pretrained)
    (found,) = score_documents(ours.module, [document], window=1024, stride=1024)
    with torch.no_grad():
        logits = theirs(torch.tensor(document.ids[:-1])[None]).logits[0]
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor(document.ids[1:]), reduction="none")
    assert len(found.nll) > 150 and found.nll == pytest.approx(wanted.numpy(), abs=1e-4)


def test_a_context_of_one_token() -> None:
    model = make_model(context_length=1)
    (document,) = make_documents(300, [20])
    (found,) = score(model, [document], 1, 1)
    assert (found.context == 1).all() and len(found.nll) == document.is_counted.sum()


def test_chunks_of_logits_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, documents = make_model(), make_documents(300, [40, 12])
    whole = score(model, documents)
    monkeypatch.setattr(scoring, "CHUNK_LOGITS", {"cpu": 300 * 3})
    for a, b in zip(whole, score(model, documents), strict=True):
        assert a.nll == pytest.approx(b.nll, abs=1e-6) and np.array_equal(a.rank, b.rank)


def test_memory_is_bounded_by_the_window_whatever_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": 48})
    monkeypatch.setattr(scoring, "CHUNK_LOGITS", {"cpu": 300 * 5})
    model, read, computed = make_model(), list[int](), list[int]()
    hidden_states, logits = model.module.hidden_states, model.module.logits
    monkeypatch.setattr(
        model.module, "hidden_states", lambda ids: (read.append(ids.numel()), hidden_states(ids))[1]
    )
    monkeypatch.setattr(model.module, "logits", lambda x: (computed.append(len(x)), logits(x))[1])
    score(model, make_documents(300, [900, 3, 3, 3]))
    assert max(read) == 32 and max(computed) == 5


def test_of_equally_likely_tokens_the_smaller_id_ranks_first() -> None:
    model = make_model().module
    for parameter in model.parameters():
        parameter.data.zero_()
    found = score_targets(model, torch.zeros(3, 16), torch.tensor([0, 7, 299]))
    assert found.rank.tolist() == [0, 7, 299]
    assert found.nll == pytest.approx(math.log(300), abs=1e-6)


def test_hidden_states_give_the_same_scores() -> None:
    model, documents = make_model(), make_documents(300, [40, 3, 12])
    nll = dict[str, list[float]]()
    for part in stream_hidden_states(model.module, documents, window=16, stride=8):
        found = score_targets(model.module, part.hidden, part.targets).nll
        nll.setdefault(part.document.name, []).extend(found)
        assert part.targets.tolist() == documents[part.number].ids[1:][part.places].tolist()
    for scores in score(model, documents, 16, 8):
        assert scores.nll == pytest.approx(nll[scores.name], abs=1e-6)


class Recorded(dict[str, TargetScores]):
    """A journal that counts what is added."""

    added = 0

    def __setitem__(self, key: str, scores: TargetScores) -> None:
        self.added += 1
        super().__setitem__(key, scores)


def test_what_a_journal_holds_is_not_computed_again_and_has_the_same_bits() -> None:
    model, documents = make_model(), make_documents(300, [2000, 50, 20] * 4)
    journal: Journal = Recorded()

    def run(some: Journal | None) -> list[DocumentScores]:
        return list(score_documents(model.module, documents, window=32, stride=16, journal=some))

    whole = run(journal)
    batches = len(journal)
    assert batches > 3
    kept = Recorded(list(journal.items())[: batches // 2])
    for a, b in zip(whole, run(kept), strict=True):
        assert np.array_equal(a.nll, b.nll) and np.array_equal(a.rank, b.rank)
    assert kept.added == batches - batches // 2
    for name in ("embed.weight", "blocks.1.mlp.up_proj.weight", "final_norm.weight"):
        before = len(kept)
        with torch.no_grad():
            model.module.get_parameter(name).view(-1)[-1] += 1e-3
        run(kept)
        assert len(kept) == before + batches


def test_what_an_edit_changes_is_not_taken_from_a_journal() -> None:
    model, documents, journal = make_model(), make_documents(300, [30]), Recorded()

    def run() -> DocumentScores:
        return next(score_documents(model.module, documents, window=32, stride=32, journal=journal))

    whole = run()
    with edit("blocks.0.attn_out", lambda value: value * 0):
        first = run()
    with edit("blocks.0.attn_out", lambda value: value * 2):
        second = run()
    assert journal.added == 3
    assert not np.array_equal(first.nll, whole.nll) and not np.array_equal(first.nll, second.nll)
    assert np.array_equal(run().nll, whole.nll) and journal.added == 3


def test_logits_that_are_not_finite_are_refused_by_the_document() -> None:
    model = make_model()
    model.module.final_norm.weight.data[0] = math.nan  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="d0"):
        score(model, make_documents(300, [9]))


def test_a_model_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="causal"):
        score(make_model(mask="none"), make_documents(300, [9]))
