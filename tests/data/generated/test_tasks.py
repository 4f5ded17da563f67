"""What every task of the folder promises; a new file is tested by being there."""

import math
from typing import Any

import pytest

from pellucid.base.errors import ConfigError
from pellucid.data.generated.formal_task import PARTS, HashGenerator, Task
from pellucid.data.generated.tasks import LETTERS, find, kinds
from pellucid.text import corpus

SMALL: dict[str, dict[str, Any]] = {
    "addition": {"digits": 1},
    "brackets": {"pairs": 1, "max_length": 6, "max_depth": 3},
    "copy": {"letters": 2, "max_length": 5},
    "recall": {"pairs": 2, "distance": 1, "keys": 3, "values": 2},
    "reverse": {"letters": 2, "max_length": 5},
    "sort": {"letters": 2, "min_length": 2, "max_length": 5},
    "translation": {"words": 1},
}
"""Settings with so few problems that a few hundred draws meet nearly all of them."""

COUNTS = [pytest.param(300, id="some"), pytest.param(3000, marks=pytest.mark.torture, id="many")]


def all_tasks() -> list[Any]:
    return [
        pytest.param(find(kind)(**settings), id=f"{kind}-{size}")
        for kind in kinds()
        for size, settings in (("small", SMALL[kind]), ("usual", {}))
    ]


def test_the_folder_lists_the_tasks() -> None:
    assert kinds() == ["addition", "brackets", "copy", "recall", "reverse", "sort", "translation"]
    assert all(find(kind)().kind == kind for kind in kinds())


def test_tasks_and_corpora_have_the_same_parts() -> None:
    assert PARTS == corpus.PARTS


def test_a_task_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="'copy'"):
        find("coppy")


@pytest.mark.parametrize("task", all_tasks())
def test_an_example_depends_on_seed_and_number_alone(task: Task) -> None:
    forwards = [task.example(3, number) for number in range(50)]
    backwards = [task.example(3, number) for number in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert forwards == [type(task)(**vars(task)).example(3, number) for number in range(50)]
    assert forwards != [task.example(4, number) for number in range(50)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("task", all_tasks())
def test_a_problem_held_out_never_occurs_in_training_whatever_the_seed(task: Task, count: int) -> None:
    problems = {
        part: {
            task.problem(task.example(seed, number, part).prompt)
            for seed in (0, 1)
            for number in range(count)
        }
        for part in PARTS
    }
    assert problems["train"] and problems["validation"]
    assert not problems["train"] & problems["validation"]


@pytest.mark.parametrize("kind", kinds())
def test_the_share_held_out_is_the_share_asked_for(kind: str) -> None:
    task, draws = find(kind)(held_out=0.3), 1000
    generator = HashGenerator("share", kind)
    prompts = {task.prompt(generator) for _ in range(draws)}
    share = sum(task.part(prompt) == "validation" for prompt in prompts) / len(prompts)
    assert abs(share - 0.3) < 4 * math.sqrt(0.3 * 0.7 / len(prompts))


@pytest.mark.parametrize("kind", kinds())
def test_a_larger_validation_split_contains_the_smaller(kind: str) -> None:
    few, many = find(kind)(held_out=0.1), find(kind)(held_out=0.5)
    for number in range(50):
        assert many.part(few.example(0, number, "validation").prompt) == "validation"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("task", all_tasks())
def test_the_vocabulary_holds_every_token_and_no_other(task: Task, count: int) -> None:
    used = set()
    for number in range(count):
        prompt, answer, _ = task.example(0, number)
        used |= {*task.tokens(prompt), *task.tokens(answer)}
    assert used == set(task.vocabulary)
    assert len(task.vocabulary) == len(used)


@pytest.mark.parametrize("task", all_tasks())
def test_no_example_is_longer_than_the_longest(task: Task) -> None:
    for part in PARTS:
        for number in range(300):
            prompt, answer, _ = task.example(0, number, part)
            assert len(task.tokens(prompt)) + len(task.tokens(answer)) <= task.longest


@pytest.mark.parametrize("kind", kinds())
def test_some_example_is_as_long_as_the_longest(kind: str) -> None:
    task = find(kind)(**SMALL[kind])
    lengths = {
        len(task.tokens(prompt)) + len(task.tokens(answer))
        for part in PARTS
        for number in range(500)
        for prompt, answer, _ in [task.example(0, number, part)]
    }
    assert max(lengths) == task.longest


@pytest.mark.parametrize("kind", kinds())
def test_the_answer_is_a_function_of_the_prompt_so_its_entropy_is_zero(kind: str) -> None:
    task = find(kind)(**SMALL[kind])
    answers: dict[str, set[str]] = {}
    for number in range(500):
        prompt, answer, _ = task.example(0, number)
        answers.setdefault(prompt, set()).add(answer)
    assert task.answer_entropy == 0 and all(len(given) == 1 for given in answers.values())
    assert len(answers) < 500, "prompts must repeat for this to say anything"


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("addition", {"digits": 0}, "addition: digits=0 is out of range: use 1 to 50"),
        ("addition", {"digits": 2.0}, r"addition: digits=2\.0 is out of range: use 1 to 50"),
        ("copy", {"letters": 27}, "copy: letters=27 is out of range: use 1 to 26"),
        ("reverse", {"max_length": 0}, "reverse: max_length=0 is out of range: use 1 to 1000000"),
        ("sort", {"min_length": 9}, "sort: min_length=9 is out of range: use 1 to 8"),
        ("brackets", {"pairs": 4}, "brackets: pairs=4 is out of range: use 1 to 3"),
        ("brackets", {"max_length": 1}, "brackets: max_length=1 is out of range: use 2 to"),
        ("brackets", {"max_depth": 1}, "brackets: max_depth=1 is out of range: use 2 to 12"),
        ("recall", {"pairs": 0}, "recall: pairs=0 is out of range: use 1 to"),
        ("recall", {"distance": 8}, "recall: distance=8 is out of range: use 0 to 7"),
        ("recall", {"keys": 1}, "recall: keys=1 is out of range: use 2 to 26"),
        ("recall", {"values": 11}, "recall: values=11 is out of range: use 2 to 10"),
        ("translation", {"words": 6}, "translation: words=6 is out of range: use 1 to 5"),
        ("copy", {"held_out": 0.0}, r"held_out must be"),
        ("copy", {"held_out": float("nan")}, "held_out must be"),
    ],
)
def test_a_setting_out_of_bounds_says_what_would_work(
    kind: str, settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        find(kind)(**settings)


def test_a_task_with_too_few_problems_says_so_instead_of_drawing_for_ever() -> None:
    task = find("copy")(letters=1, max_length=1)  # type: ignore[call-arg]
    empty = next(part for part in PARTS if part != task.part("a>"))
    with pytest.raises(ConfigError, match=empty):
        task.example(0, 0, empty)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'validation'"):
        find("copy")().example(0, 0, "valid")


def test_examples_never_change_between_versions() -> None:
    """Golden: a model trained once can be tested later on what it has not seen."""
    assert find("addition")().example(1, 0)[:2] == ("60+235=", "295")
    assert find("copy")().example(1, 0, "validation")[:2] == ("hggca>", "hggca")
    assert find("recall")().example(1, 3)[:2] == ("x9g6c9i6k3o0x1g4?i", "6")


def test_draws_are_fair() -> None:
    """Chi-square with 25 degrees of freedom: above 60 with a chance of 1 in 10,000."""
    generator, draws = HashGenerator("fair"), 10_000
    counts = dict.fromkeys(LETTERS, 0)
    for _ in range(draws):
        counts[generator.one_of(LETTERS)] += 1
    expected = draws / len(LETTERS)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 60
    assert {generator.between(3, 5) for _ in range(100)} == {3, 4, 5}
