"""Ledgers made by plain arithmetic, without an engine: for the tests of file, replay and views."""

import math
import random
from dataclasses import replace
from itertools import accumulate

from pellucid.generation.ledger.content import LedgerModel, LedgerSampler, describe_versions
from pellucid.generation.ledger.entry import BeamNode, Candidate, Entry, Removal, SpeculativeStep
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.request import Completion
from pellucid.generation.samplers.drawn_token import draw_uniform
from pellucid.generation.settings.sampling import Sampling

TEXTS = ("·the", "·cat", "·sat", ".", "<b>&", "\\u202e", "·猫", "</script>")
SEED = 7


def make_entry(logits: list[float], u: float | None, temperature: float = 0.8, top_k: int = 5) -> Entry:
    """Returns the entry of one token: temperature, then top-k, then the draw."""
    size = len(logits)
    scores = [logit / temperature if u is not None else logit for logit in logits]
    order = sorted(range(size), key=lambda id: (-scores[id], id))
    kept, gone = order[:top_k], order[top_k:]
    top = scores[kept[0]]
    log_normalizer = top + math.log(math.fsum(math.exp(scores[id] - top) for id in kept))
    probabilities = {id: math.exp(scores[id] - log_normalizer) for id in kept}
    reached = list(accumulate(probabilities[id] for id in kept))
    id = kept[0] if u is None else next(id for id, end in zip(kept, reached, strict=True) if end > u)
    whole = math.log(math.fsum(map(math.exp, logits)))
    before = math.fsum(math.exp(score) for score in scores)
    return Entry(
        id=id,
        u=u,
        logit=logits[id],
        probability=probabilities[id],
        rank=sorted(range(size), key=lambda id: (-logits[id], id)).index(id),
        surprisal=whole - logits[id],
        entropy=-math.fsum(math.exp(logit - whole) * (logit - whole) for logit in logits),
        candidates=tuple(Candidate(id, logits[id], scores[id], probabilities[id]) for id in kept),
        kept=len(kept),
        log_normalizer=log_normalizer,
        removed=(Removal("top_k", len(gone), sum(math.exp(scores[id]) / before for id in gone), tuple(gone)),)
        if gone
        else (),
    )


def make_small_ledger(tokens: int = 6, choices: int = 1, temperature: float = 0.8, top_k: int = 5) -> Ledger:
    """Returns a ledger of a vocabulary of eight tokens, drawn from logits that are drawn at random."""
    rng = random.Random(SEED)
    size, completions = len(TEXTS), []
    for choice in range(choices):
        entries = []
        for step in range(tokens):
            logits = [rng.gauss(0, 2) for _ in range(size)]
            u = draw_uniform(SEED, choice, step) if temperature else None
            entries.append(make_entry(logits, u, temperature, top_k))
        ids = tuple(entry.id for entry in entries)
        text = "".join(TEXTS[id] for id in ids)
        completions.append(Completion(choice, ids, text, "length", entries=tuple(entries), seed=SEED))
    sampling = Sampling(temperature=temperature, top_k=top_k, max_new_tokens=tokens, seed=SEED, n=choices)
    return Ledger(
        model=LedgerModel("small", None, "0" * 64, 100, size, 64),
        versions=describe_versions("cpu"),
        prompt=(0, 1),
        sampling=sampling,
        sources={"temperature": "given", "top_k": "preset balanced"},
        chain=(
            *([LedgerSampler("temperature", {"temperature": temperature})] if temperature else []),
            LedgerSampler("top_k", {"top_k": top_k}),
        ),
        stop_ids=(),
        seed=SEED,
        completions=tuple(completions),
        texts=dict(enumerate(TEXTS)),
    )


def make_beam_ledger() -> Ledger:
    """Returns two beams over two steps: the first step keeps tokens 1 and 2, the second ends both."""
    scores = [math.log(0.5), math.log(0.3), math.log(0.2)]
    firsts = [
        BeamNode(-1, 1, scores[0], scores[0], "kept"),
        BeamNode(-1, 2, scores[1], scores[1], "kept"),
        BeamNode(-1, 0, scores[2], scores[2], "pruned"),
    ]
    seconds = []
    for parent, id, p in ((0, 3, 0.6), (1, 3, 0.9), (0, 4, 0.3)):
        score = firsts[parent].score + math.log(p)
        ended = (2.0, score / 2.0) if id == 3 else (None, None)
        fate = "finished" if id == 3 else "pruned"
        seconds.append(BeamNode(parent, id, math.log(p), score, fate, *ended))
    tree = (*firsts, *seconds)
    completions = tuple(
        Completion(i, ids, "".join(TEXTS[id] for id in ids), "stop", score=tree[node].final, node=node)
        for i, (ids, node) in enumerate((((1, 3), 3), ((2, 3), 4)))
    )
    ledger = make_small_ledger(1, temperature=0.0)
    sampling = Sampling(beams=2, n=2, length_penalty=1.0, max_new_tokens=4)
    return replace(
        ledger, sampling=sampling, sources={}, chain=(), stop_ids=(3,), completions=completions, beams=tree
    )


def make_speculative_ledger() -> Ledger:
    """Returns a ledger in which three tokens were proposed, and two of them accepted."""
    ledger = make_small_ledger()
    first = ledger.completions[0]
    wrong = (first.ids[3] + 1) % len(TEXTS)
    step = SpeculativeStep(1, "lookup", (first.ids[1], first.ids[2], wrong), 2)
    return replace(ledger, completions=(replace(first, speculative=(step,)),))
