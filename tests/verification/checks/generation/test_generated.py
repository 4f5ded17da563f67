"""Every text of a healthy engine has the log-probabilities of one uncached pass; wrong ones have a name."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pellucid.generation.context import shorten
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.strategies.beam_search import BeamSearch
from pellucid.verification.checks.generation.engine_schedule import Generated
from pellucid.verification.checks.generation.generated import (
    Judge,
    Scorer,
    search_beams,
    split_passes,
)
from pellucid.verification.verdict import Finding
from tests.verification.checks.subjects import make_subject, measure

PROMPT = (3, 4, 5)


def judge(dtype: torch.dtype = torch.float64) -> Judge:
    return Judge(Scorer(make_subject(has_tokenizer=False).module(dtype)), prefix=0)


@pytest.mark.rotating
@pytest.mark.parametrize("gain", [0.0, 0.01, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_healthy_model_generates_what_it_scores(gain: float, dtype: str) -> None:
    finding = measure("generated", gain=gain, dtype=dtype, has_tokenizer=False)
    assert finding.verdict == "noise", f"{finding.at}: {finding.message}"


@pytest.mark.rotating
@pytest.mark.parametrize("context", [1, 2, 3, 5, 9, 17])
def test_a_short_context_is_checked_as_far_as_it_goes(context: int) -> None:
    assert measure("generated", has_tokenizer=False, context_length=context).verdict == "noise"


# ---- what is claimed of a text


def score_text(scorer: Scorer, ids: tuple[int, ...]) -> tuple[float, ...]:
    whole = [*PROMPT, *ids]
    rows = scorer(whole[:-1])
    return tuple(float(rows[len(PROMPT) - 1 + at][id]) for at, id in enumerate(ids))


def make(
    judged: Judge, change: Callable[[list[float]], None] = lambda values: None, **settings: object
) -> Generated:
    ids = (7, 8)
    logprobs = list(score_text(judged.score, ids))
    change(logprobs)
    usual: dict[str, object] = {"temperature": 1.0, "max_new_tokens": 2, "stop_ids": ()}
    request = Request(PROMPT, Sampling(**(usual | settings)), logprobs=True)  # type: ignore[arg-type]
    return Generated("a test", request, 64, [Completion(0, ids, "", "length", tuple(logprobs))])


def where(finding: Finding | None) -> str:
    return "" if finding is None else finding.at


def test_a_right_text_has_no_bug_and_a_wrong_logprob_has_its_place() -> None:
    judged = judge()
    assert judged.find_bug(make(judged)) is None

    def change(values: list[float]) -> None:
        values[1] += 1e-6

    found = judged.find_bug(make(judged, change))
    assert where(found) == "generated[request=a test,token=1]"

    def spoil(values: list[float]) -> None:
        values[0] = float("nan")

    assert where(judged.find_bug(make(judged, spoil))) == "generated[request=a test,token=0]"
    assert where(judged.find_bug(make(judged, list.clear))) == "generated[request=a test]"


def test_a_greedy_text_must_have_the_most_probable_tokens() -> None:
    judged = judge()
    assert where(judged.find_bug(make(judged, temperature=0.0))) == "generated[request=a test,token=0]"


def test_forced_tokens_must_be_there() -> None:
    judged = judge()
    assert judged.find_bug(make(judged, forced_tokens=(7,))) is None
    assert where(judged.find_bug(make(judged, forced_tokens=(7, 9)))) == "generated[request=a test,token=1]"


@pytest.mark.parametrize("settings", [{"stop_ids": (7,)}, {"stop_ids": (8,)}, {"max_new_tokens": 3}])
def test_a_text_ends_at_a_stop_token_or_with_its_last(settings: dict[str, object]) -> None:
    judged = judge()
    assert where(judged.find_bug(make(judged, **settings))) == "a test.finish"


def test_the_budget_follows_the_error_of_the_uncached_run() -> None:
    wide, narrow = judge().score, judge(torch.bfloat16).score
    for scorer in (wide, narrow):
        scorer([1, 2, 3])
    assert wide.allowed == 1e-9 and narrow.allowed >= 16 * narrow.error > 0


# ---- a full context, and beams


@pytest.mark.parametrize("rule", ["crop", "roll"])
@pytest.mark.parametrize("prefix", [0, 3])
def test_passes_are_what_the_engine_reads_again(rule: str, prefix: int) -> None:
    sampling = Sampling(context=rule, keep=2 if rule == "roll" else 0, max_new_tokens=12)
    new = list(range(10, 22))
    passes = list(split_passes([1, 2, 3, 4, 5], new, sampling, 8, prefix))
    assert [id for tokens, start in passes for id in tokens[start:]] == new
    for (before, _), (after, start) in itertools.pairwise(passes):
        assert after[:start] == shorten(before, rule, sampling.keep, 8, prefix)
    assert all(len(tokens) <= 9 for tokens, _ in passes) and len(passes) == 3


def test_the_search_finds_what_the_engines_search_finds() -> None:
    scorer = judge().score
    order = np.argsort(-scorer(PROMPT)[-1])
    sampling = Sampling(beams=3, n=2, max_new_tokens=3, length_penalty=0.5, stop_ids=(int(order[1]),))
    search = BeamSearch(3, 3, n=2, length_penalty=0.5, stop_ids=frozenset(sampling.stop_ids or ()))
    while not search.is_done:
        rows = [scorer([*PROMPT, *one.ids])[-1] for one in search.running]
        search.step(torch.from_numpy(np.stack(rows)))
    found = search_beams(scorer, Request(PROMPT, sampling))
    assert found == pytest.approx([one.score for one in search.best()], abs=1e-12)


def test_the_search_does_not_judge_ties() -> None:
    flat = Scorer(make_subject(gain=0.0).module(torch.float64))
    assert search_beams(flat, Request(PROMPT, Sampling(beams=2, max_new_tokens=2, stop_ids=()))) is None
