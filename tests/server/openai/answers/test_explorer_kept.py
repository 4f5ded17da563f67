"""Answers are kept under ids that cannot be guessed, and the least recently used one goes."""

import pytest

from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers.explorer import MOST_ANSWERS, KeptAnswers


def test_an_answer_is_found_with_its_tokens() -> None:
    answers = KeptAnswers()
    id = answers.keep([1, 2**31 - 1], (3,))
    found = answers.get(id)
    assert (found.prompt.tolist(), found.new.tolist(), len(found)) == ([1, 2**31 - 1], [3], 3)


def test_ids_are_unlike_each_other_and_fit_a_link() -> None:
    answers = KeptAnswers()
    ids = [answers.keep([1], [2]) for _ in range(200)]
    assert len(set(ids)) == 200
    for id in ids:
        assert id.startswith("tr_") and len(id) >= 19 and id.replace("-", "").replace("_", "").isalnum()


def test_the_least_recently_used_answer_goes() -> None:
    answers = KeptAnswers()
    first, second, *_ = [answers.keep([i], []) for i in range(MOST_ANSWERS)]
    answers.get(first)
    answers.keep([1], [])
    assert len(answers) == MOST_ANSWERS and answers.get(first).prompt.tolist() == [0]
    with pytest.raises(RequestError) as refused:
        answers.get(second)
    assert (refused.value.status, refused.value.param) == (404, "answer")


def test_long_answers_are_fewer() -> None:
    answers = KeptAnswers(most_tokens=10)
    ids = [answers.keep([1, 2, 3], [4]) for _ in range(4)]
    assert len(answers) == 2 and len(answers.get(ids[-1])) == 4
    longest = answers.keep(range(20), [])
    assert len(answers) == 1 and len(answers.get(longest)) == 20


@pytest.mark.parametrize("id", ["", "tr_", "tr_" + "x" * 100, "t1"])
def test_an_unknown_id_is_refused(id: str) -> None:
    with pytest.raises(RequestError):
        KeptAnswers().get(id)
