"""Checks that a tokenizer decodes what it encodes, and that other programs give the same ids."""

from collections.abc import Callable, Sequence
from functools import partial

from pellucid.base.errors import TokenError
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.outside.outside_tokenizers import OutsideTokenizer, open_outside
from pellucid.verification.checks.outside.sample_texts import TEXTS, sample_texts
from pellucid.verification.checks.outside.witnesses import Departure, Witness, join, judge_departure
from pellucid.verification.verdict import Finding, Judged, Verdict

NONE_READ = "its tokenizer cannot encode any of the sample texts"


def measure_round_trip(subject: Subject) -> Finding:
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    readable, exact = _select_readable(tokenizer, (subject.text, *TEXTS)), 0
    if not readable:
        return Finding(Verdict.SKIPPED, NONE_READ)
    name = getattr(tokenizer, "unknown", None)
    unknown = None if name is None else tokenizer.id_of(name)
    texts = [text for text in readable if unknown is None or unknown not in tokenizer.encode(text)]
    if not texts:
        return Finding(Verdict.SKIPPED, f"each sample text has words that its tokenizer encodes as {name}")
    for text in texts:
        back = tokenizer.decode(tokenizer.encode(text))
        if back != text and tokenizer.encode(back) != tokenizer.encode(text):
            return Finding(Verdict.BUG, "the text changed", "tokenizer.decode", f"{text!r}\n{back!r}")
        exact += back == text
    verdict = Verdict.EQUAL if exact == len(texts) else Verdict.NOISE
    return Finding(verdict, f"{exact} of {len(texts)} texts return character for character")


def measure_same_ids(subject: Subject) -> Finding:
    """Compares the ids of texts, ordinary and with their special tokens parsed, with those of each program;
    who departs is judged by the others."""
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    texts = _select_readable(tokenizer, sample_texts(subject))
    if not texts:
        return Finding(Verdict.SKIPPED, NONE_READ)
    programs, missing = open_outside(subject)
    if not programs:
        return Finding(Verdict.SKIPPED, "; ".join(missing))
    departures = {program.title: _find_departure(tokenizer, texts, program) for program in programs}
    count = sum(len(tokenizer.encode(text)) for text in texts)
    agreeing = [title for title, departure in departures.items() if departure is None]
    equal = f"{count:,} equal tokens by {join(agreeing)}" if agreeing else ""
    departing = next((program for program in programs if departures[program.title]), None)
    if departing is None:
        return Finding(Verdict.EQUAL, "; ".join([equal, *missing]))
    found = departures[departing.title]
    assert found is not None
    departure, ask = found
    if agreeing and programs[0].is_authority and programs[0] is not departing:
        return Finding(Verdict.EQUAL, f"{equal}; {departing.title} departs: {departure.measured}")
    heard = [program for program in programs if _is_heard(program, departing)]
    others = [Witness(program.title, ask(program), "was not asked") for program in heard]
    others += [Witness(reason, None) for reason in missing]
    return judge_departure(departing.title, departure, departing.is_authority, others, backing=())


def _is_heard(other: OutsideTokenizer, departing: OutsideTokenizer) -> bool:
    """Returns whether a program is independent of another that departs: the reader of our export is not."""
    return other is not departing and (other.is_of_the_file or not departing.is_of_the_file)


Ask = Callable[[OutsideTokenizer], bool | None]
"""Returns whether another program encodes as we do the text at which the first departs."""


def _find_departure(
    tokenizer: Tokenizer, texts: Sequence[str], program: OutsideTokenizer
) -> tuple[Departure, Ask] | None:
    """Returns the first token that another program encodes differently, and how to ask a third one."""
    for way, parse in (("encode", False), ("parse", True)):
        for text in texts:
            ids, found = tokenizer.encode(text, parse), getattr(program, way)(text)
            if found is None or ids == found:
                continue
            differ = (i for i, (a, b) in enumerate(zip(ids, found, strict=False)) if a != b)
            i = next(differ, min(len(ids), len(found)))
            message = f"of {text!r}, from token {i}: ours {ids[i : i + 5]}, {program.name} {found[i : i + 5]}"
            at = f"tokenizer.encode{'(parse_special)' if parse else ''}"
            departure = Departure(at, message, f"token {i} of {text[:30]!r}…")
            return departure, partial(_agrees, way, text, ids)
    return None


def _agrees(way: str, text: str, ids: list[int], program: OutsideTokenizer) -> bool | None:
    found = getattr(program, way)(text)
    return None if found is None else found == ids


def _select_readable(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    readable = []
    for text in texts:
        try:
            tokenizer.encode(text)
            readable.append(text)
        except TokenError:
            continue
    return readable


CHECKS = (
    Check(
        "tokenizer",
        "Decoding the ids of a text returns that text.",
        "character for character",
        measure_round_trip,
        Judged.MODEL,
    ),
    Check(
        "tokenizer outside",
        "Other programs encode a text to the same ids with its tokenizer file.",
        "id for id",
        measure_same_ids,
        Judged.MODEL,
    ),
)
