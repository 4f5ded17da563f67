"""Witnesses: when another program departs from ours, who else says so.

A program is the authority on a file in its own format: `transformers` on a Hugging Face folder, llama.cpp on
a GGUF file. A departure is a bug of ours if the authority departs and no other program that reads the same
file sides with us, or if two other programs depart. Where one program departs and no other can be asked, the
verdict is "cannot tell". A program that reads our own export is a witness of our arithmetic alone.

"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pellucid.verification.checks.check import Subject
from pellucid.verification.verdict import Finding, Verdict

SAME_FILE, EXPORT = "from the same file", "from our export"
SPECIFICATION = "the specification"

T = TypeVar("T")


@dataclass(frozen=True)
class Witness:
    """Another program's word on our reading: `agrees` is None where it cannot tell, and `about` says why."""

    name: str
    agrees: bool | None
    about: str = ""


@dataclass(frozen=True)
class Departure:
    """Where another program departs from ours, and the lines that explain it."""

    at: str
    message: str
    measured: str = ""


def judge_departure(
    name: str,
    departure: Departure,
    is_authority: bool,
    others: Sequence[Witness],
    backing: Sequence[str] = (SPECIFICATION,),
) -> Finding:
    """Returns the finding about a program that departs, after the others were heard; `backing` has those who
    are known to agree with ours."""
    against = [witness.name for witness in others if witness.agrees is False]
    siding = [witness.name for witness in others if witness.agrees]
    what = f"{name} departs at {departure.at}"
    if against or (is_authority and not siding):
        also = f"{join(against)} {'departs' if len(against) == 1 else 'depart'} as well" if against else ""
        alone = f"it is the authority on this file{_list_silent(others)}"
        message = f"{departure.message}\n{what}; {also or alone}"
        return Finding(Verdict.BUG, departure.measured or what, departure.at, message)
    agreeing = [*siding, *backing]
    with_us = f"; {join(agreeing)} {'agree' if len(agreeing) > 1 else 'agrees'} with ours" if agreeing else ""
    if siding:
        return Finding(Verdict.NOISE, what + with_us)
    measured = what + with_us + _list_silent(others)
    return Finding(Verdict.UNKNOWN, measured, departure.at, departure.message)


def _list_silent(others: Sequence[Witness]) -> str:
    """Returns why the other witnesses cannot tell."""
    reasons = [f"{witness.name} {witness.about}" for witness in others if witness.agrees is None]
    return "".join(f"; {reason}" for reason in reasons)


def join(names: Sequence[str]) -> str:
    """Returns names as a sentence lists them.

    >>> join(["llama.cpp", "transformers", "the specification"])
    'llama.cpp, transformers and the specification'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def remember(ask: Callable[[Subject], T]) -> Callable[[Subject], T]:
    """Returns the function, which asks about each subject once: several checks hear the same witness."""
    answers: weakref.WeakKeyDictionary[Subject, T] = weakref.WeakKeyDictionary()

    def answer(subject: Subject) -> T:
        if subject not in answers:
            answers[subject] = ask(subject)
        return answers[subject]

    return answer


TEXTS = (
    "It's 12:30, isn't it?  Twenty-three spaces:                       end.\n\n\ttabs\tand\r\nlines",
    "naïve façade Ångström — “quoted” … ½ ² ™ 𝒳 👩‍🚀 العربية 日本語 עברית Ελληνικά कि",
    "def f(x):\n    return x ** 2  # 10_000 == 1e4\n",
    " leading, trailing ",
    "cafe\u0301 cooperation \ufb01ne \u2167 \uff21\uff22 a\u00a0b\u200bc \u1e9b\u0323 İstanbul",
    "<|im_start|>user\n<s> </s> <|endoftext|> [INST]",
)
"""Spaces, digits, contractions, letters that a normalizer changes; the last has names of special tokens."""
SHORT = "The sea"

CONVERSATION = (
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is 12 + 30?"},
    {"role": "assistant", "content": "It is 42."},
    {"role": "user", "content": " And twice that?\n"},
)


def sample_texts(subject: Subject) -> tuple[str, ...]:
    """Returns the texts for a model's tokenizer, the last with the names of its own special tokens."""
    tokenizer = subject.model.pretrained.tokenizer
    names = [] if tokenizer is None else list(tokenizer.special_tokens)[:8]
    return (SHORT, subject.text, *TEXTS, " ".join(f"a{name}b {name}" for name in names) or SHORT)
