"""Every answer is right, by checkers that share nothing with the tasks."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from pellucid.data.generated.formal_task import PARTS
from pellucid.data.generated.tasks import CLASSES, Brackets, Recall, Translation, find


def copy_is_right(prompt: str, answer: str) -> bool:
    return prompt == answer + ">"


def reverse_is_right(prompt: str, answer: str) -> bool:
    return len(prompt) == len(answer) + 1 and all(
        letter == prompt[len(answer) - 1 - place] for place, letter in enumerate(answer)
    )


def sort_is_right(prompt: str, answer: str) -> bool:
    return Counter(answer + ">") == Counter(prompt) and all(a <= b for a, b in pairwise(answer))


def addition_is_right(prompt: str, answer: str) -> bool:
    """Column by column, as on paper."""
    numbers = re.fullmatch(r"(0|[1-9]\d*)\+(0|[1-9]\d*)=", prompt)
    if not numbers or not re.fullmatch(r"0|[1-9]\d*", answer):
        return False
    carry = 0
    columns = [text[::-1].ljust(60, "0") for text in (*numbers.groups(), answer)]
    for above, below, result in zip(*columns, strict=True):
        carry, digit = divmod(int(above) + int(below) + carry, 10)
        if digit != int(result):
            return False
    return True


def brackets_is_right(prompt: str, answer: str) -> bool:
    """Striking out matching neighbours empties the text; the answer only closes, so it is the shortest."""
    text = prompt.replace(">", "") + answer
    while (shorter := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
        text = shorter
    return text == "" and re.fullmatch(r"[\)\]\}]+", answer) is not None


def recall_is_right(prompt: str, answer: str) -> bool:
    return re.findall(prompt[-1] + r"(\d)", prompt) == [answer]


NOUN_PHRASE = r"(?:(?:{determiner}) (?:(?:{quality}) )?(?:{noun})(?: (?:{colour}))?)"
FRENCH = (
    rf"{NOUN_PHRASE} (?:le (?:{{verb}})(?: (?:{{adverb}}))?|(?:{{verb}}) (?:(?:{{adverb}}) )?{NOUN_PHRASE})"
)


def translation_is_right(prompt: str, answer: str) -> bool:
    """French grammar as a pattern, and the same words: together they leave one answer."""
    classes = {name: "|".join(words.values()) for name, words in CLASSES.items()}
    words = {"it": "le"} | {english: french for pair in CLASSES.values() for english, french in pair.items()}
    expected = Counter(words[word] for word in prompt.split()[:-1])
    return (
        re.fullmatch(FRENCH.format(**classes), answer) is not None
        and Counter(answer.split()) == expected
        and prompt.endswith(" >")
    )


CHECKERS: dict[str, Callable[[str, str], bool]] = {
    "addition": addition_is_right,
    "brackets": brackets_is_right,
    "copy": copy_is_right,
    "recall": recall_is_right,
    "reverse": reverse_is_right,
    "sort": sort_is_right,
    "translation": translation_is_right,
}


@pytest.mark.parametrize(
    "count", [pytest.param(500, id="some"), pytest.param(5000, marks=pytest.mark.torture, id="many")]
)
@pytest.mark.parametrize("kind", CHECKERS)
def test_every_answer_is_right(kind: str, count: int) -> None:
    task = find(kind)()
    for part in PARTS:
        for number in range(count // 2):
            prompt, answer, _ = task.example(7, number, part)
            assert CHECKERS[kind](prompt, answer), f"{prompt} {answer}"


@pytest.mark.parametrize("kind", CHECKERS)
def test_the_checker_refuses_the_answer_to_another_problem(kind: str) -> None:
    task = find(kind)()
    examples = [task.example(7, number) for number in range(60)]
    for one, other in pairwise(examples):
        if one.answer != other.answer:
            assert not CHECKERS[kind](one.prompt, other.answer)


def test_the_largest_sum_is_right() -> None:
    task = find("addition")(digits=50)  # type: ignore[call-arg]
    nines = "9" * 50
    prompt, answer, _ = task.solve(f"{nines}+{nines}=")
    assert addition_is_right(prompt, answer) and len(prompt) + len(answer) == task.longest


def test_two_numbers_are_one_problem_in_either_order() -> None:
    task = find("addition")(held_out=0.5)
    for a in range(30):
        for b in range(30):
            assert task.part(f"{a}+{b}=") == task.part(f"{b}+{a}=")


def test_every_pair_of_digits_is_a_problem_of_one_of_the_parts() -> None:
    task = find("addition")(digits=1, held_out=0.5)  # type: ignore[call-arg]
    problems = {task.problem(task.example(0, number, part).prompt) for part in PARTS for number in range(400)}
    assert problems == {f"{a}+{b}=" for b in range(10) for a in range(b + 1)}


@pytest.mark.parametrize("pairs_and_distance", [(1, 0), (5, 0), (5, 4), (300, 299), (300, 123)])
def test_the_asked_pair_stands_at_the_chosen_distance(pairs_and_distance: tuple[int, int]) -> None:
    pairs, distance = pairs_and_distance
    for number in range(20):
        prompt, _, _ = Recall(pairs=pairs, distance=distance, keys=3).example(0, number)
        message, asked = prompt.split("?")
        assert len(message) == 2 * pairs and message[::2].count(asked) == 1
        assert message[::2][::-1].index(asked) == distance


@pytest.mark.parametrize("length", range(2, 9))
@pytest.mark.parametrize("depth", range(2, 9))
def test_the_longest_brackets_are_as_long_as_any_text_of_brackets_can_make_them(
    length: int, depth: int
) -> None:
    if depth > length:
        return
    ends = {(0, 0)}  # brackets so far, brackets open
    for _ in range(length):
        ends |= {
            (so_far + 1, open_ + step)
            for so_far, open_ in ends
            for step in (1, -1)
            if so_far < length and 0 <= open_ + step <= depth
        }
    longest = max(so_far + 1 + open_ for so_far, open_ in ends)
    assert Brackets(max_length=length, max_depth=depth).longest == longest


def test_brackets_are_open_at_the_end_and_never_deeper_than_asked() -> None:
    task = Brackets(max_length=30, max_depth=4)
    for number in range(200):
        prompt, answer, _ = task.example(0, number)
        depth = [0]
        for bracket in prompt[:-1]:
            depth.append(depth[-1] + (1 if bracket in "([{" else -1))
        assert min(depth) == 0 and max(depth) <= 4 and depth[-1] == len(answer) > 0


def test_the_alignment_pairs_each_word_with_its_translation() -> None:
    words = {"it": "le"} | {english: french for pair in CLASSES.values() for english, french in pair.items()}
    moved = 0
    for number in range(300):
        prompt, answer, alignment = Translation().example(0, number)
        english, french = prompt.split()[:-1], answer.split()
        assert alignment is not None
        assert [source for source, _ in alignment] == list(range(len(english)))
        assert sorted(target for _, target in alignment) == list(range(len(french)))
        assert all(words[english[source]] == french[target] for source, target in alignment)
        moved += any(source != target for source, target in alignment)
    assert moved > 200


def test_the_three_rules_of_order_by_example() -> None:
    task = Translation()
    assert task.solve("the cat sees a dog >")[1:] == (
        "le chat voit un chien",
        ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4)),
    )
    assert (
        task.solve("the big black cat sees my red dog >").answer == "le grand chat noir voit mon chien rouge"
    )
    _, answer, alignment = task.solve("the black cat often sees it >")
    assert answer == "le chat noir le voit souvent"
    assert alignment == ((0, 0), (1, 2), (2, 1), (3, 5), (4, 4), (5, 3))
