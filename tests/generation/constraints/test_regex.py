"""Regular expressions: as Python's `re` reads them, or refused with the place."""

import re
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import UsageError
from pellucid.generation.constraints.regex import compile_regex

SINGLE = ["a", "b", "é", "日", ".", "{", "a{b}", r"\.", r"\n", r"\x41", r"\u00e9"]
SETS = [
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    "[ab]",
    "[^a]",
    "[a-cé-ü]",
    r"[\d_]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[+.]",
]
ATOMS = st.sampled_from([*SINGLE, *SETS])
COUNTS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "+?", "??", "{1,2}?"])


def combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["({})", "(?:{})", "(?P<name>{})"])
    joined = st.lists(inner, max_size=4).map("".join) | st.lists(inner, min_size=2, max_size=3).map("|".join)
    return st.builds(lambda group, text, count: group.format(text) + count, groups, joined, COUNTS)


UNITS = st.recursive(st.builds("".join, st.tuples(ATOMS, COUNTS)), combine, max_leaves=8)
PATTERNS = st.lists(UNITS, max_size=4).map("".join)
TEXTS = st.text("aab1_é日 \n.A{}b]", max_size=8)


def compare(pattern: str, texts: list[str]) -> None:
    if pattern.count("(?P<name>") > 1:
        pattern = pattern.replace("(?P<name>", "(?:")
    try:
        found = compile_regex(pattern)
    except UsageError as error:
        if "too large" in str(error) or "states" in str(error):
            return
        raise
    known = re.compile(pattern, re.ASCII)
    for text in texts:
        wanted = match_in_python(known, text)
        assert wanted in (None, found.accepts(text.encode())), (pattern, text)


def match_in_python(pattern: re.Pattern[str], text: str) -> bool | None:
    """Returns whether Python matches the whole text; None where its search, which backtracks through nested
    repetitions, takes a fifth of a second."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
    try:
        return pattern.fullmatch(text) is not None
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@settings(max_examples=40, deadline=None)
@given(PATTERNS, st.lists(TEXTS, max_size=20))
def test_an_automaton_accepts_what_python_matches(pattern: str, texts: list[str]) -> None:
    compare(pattern, texts)


@pytest.mark.torture
@settings(max_examples=1000, deadline=None)
@given(PATTERNS, st.lists(TEXTS, max_size=20))
def test_many_automata_accept_what_python_matches(pattern: str, texts: list[str]) -> None:
    compare(pattern, texts)


@settings(max_examples=200, deadline=None)
@given(st.text("ab()[]{}|*+?^$\\.-,:19dZP<>=!&", max_size=10))
def test_a_pattern_that_is_accepted_is_one_of_python_too(pattern: str) -> None:
    try:
        found = compile_regex(pattern)
    except UsageError:
        return
    known = re.compile(pattern, re.ASCII)
    for text in ("", "a", "b", "ab", "aab", "-", "{", "1", "^"):
        assert found.accepts(text.encode()) == (known.fullmatch(text) is not None), (pattern, text)


@pytest.mark.parametrize("pattern", ["^a|b$", r"\Aab\Z", "^$|x"])
def test_anchors_at_the_ends_change_nothing(pattern: str) -> None:
    compare(pattern, ["", "a", "b", "ab", "x", "a\n"])


@pytest.mark.parametrize(
    ("pattern", "place", "reason"),
    [
        ("ab(?=c)", 2, "lookahead"),
        ("(?!c)", 0, "lookahead"),
        ("(?<=c)a", 0, "lookbehind"),
        (r"(a)\1", 3, "back-reference"),
        ("(?P=x)", 0, "back-reference"),
        ("(?i)a", 0, "flags"),
        ("(?>a)", 0, "atomic"),
        ("a*+", 2, "possessive"),
        ("a**", 2, "repeated"),
        ("*a", 0, "nothing to repeat"),
        ("(a", 0, "not closed"),
        ("a)", 1, "not opened"),
        ("[a", 0, "not closed"),
        ("[b-a]", 2, "range"),
        ("a{3,2}", 1, "larger"),
        ("a{1000000}", 1, "larger"),
        (r"\q", 0, "escape"),
        (r"\bx", 0, "escape"),
        ("a^b", 1, "anchor"),
        ("(a$)b", 2, "anchor"),
        ("a$b", 1, "anchor"),
        ("x\\", 1, "backslash"),
        (r"\u00", 0, "hexadecimal"),
        ("[[:alpha:]]", 1, "in a set"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(pattern: str, place: int, reason: str) -> None:
    with pytest.raises(UsageError) as refusal:
        compile_regex(pattern)
    assert f"(at character {place})" in str(refusal.value)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*a(a|b){20}",
        "(a?){5000}a{5000}",
        "a?" * 4000,
        "(a{10000}){10000}",
        "((a{1000}){1000}){1000}",
        "(.{0,1000}){0,1000}",
        "(?:a|b|ab){0,9000}",
        "(" * 60 + ")" * 60,
        "x" * 10_001,
        "[^\\s\\S]",
    ],
)
def test_a_pattern_without_an_automaton_is_refused_in_time(pattern: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError):
        compile_regex(pattern)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "((a*)*)*b", "(a|a)*b", "(.*)*x", r"(\w+\s?)*!"])
def test_a_pattern_on_which_backtracking_fails_is_small(pattern: str) -> None:
    assert len(compile_regex(pattern).table) < 50
