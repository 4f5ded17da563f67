"""A ledger replays bit for bit, and one changed number is found where it is."""

import math
from dataclasses import replace

import pytest

from pellucid.generation.ledger.content import Shortening
from pellucid.generation.ledger.entry import Entry
from pellucid.generation.ledger.ledger import Ledger
from pellucid.generation.ledger.replay import replay_ledger
from pellucid.generation.request import Completion, Request
from tests.generation.small_ledgers import make_beam_ledger, make_small_ledger, make_speculative_ledger


def change(ledger: Ledger, step: int, **fields: object) -> Ledger:
    first = ledger.completions[0]
    entries = list(first.entries)
    entries[step] = replace(entries[step], **fields)  # type: ignore[arg-type]
    ids = tuple(entry.id for entry in entries)
    return replace(
        ledger, completions=(replace(first, entries=tuple(entries), ids=ids), *ledger.completions[1:])
    )


@pytest.mark.parametrize(
    "ledger",
    [
        make_small_ledger(),
        make_small_ledger(4, 3),
        make_small_ledger(temperature=0.0),
        make_small_ledger(top_k=8),
        make_beam_ledger(),
        make_speculative_ledger(),
    ],
    ids=["one", "three", "greedy", "whole", "beams", "speculative"],
)
def test_every_number_follows_bit_for_bit(ledger: Ledger) -> None:
    done = replay_ledger(ledger)
    assert not done.mismatches
    assert done.tokens == sum(len(completion.ids) for completion in ledger.completions)
    if ledger.sampling.temperature:
        assert done.draws == done.tokens
    assert "0 mismatches" in str(done)


def next_float(value: float) -> float:
    return math.nextafter(value, math.inf)


def other_candidate(entry: Entry) -> int:
    return next(one.id for one in entry.candidates if one.id != entry.id)


def test_u_is_compared_to_the_last_bit() -> None:
    ledger = make_small_ledger()
    u = ledger.completions[0].entries[2].u
    assert u is not None
    [found] = replay_ledger(change(ledger, 2, u=next_float(u))).mismatches
    assert (found.where, found.what, found.computed) == ("token 3", "u", u)


def test_a_setting_that_is_not_in_the_chain_is_found() -> None:
    ledger = make_small_ledger()
    for changed in (replace(ledger.sampling, temperature=0.9), replace(ledger.sampling, min_p=0.1)):
        [found] = replay_ledger(replace(ledger, sampling=changed)).mismatches
        assert (found.where, found.what) == ("the settings", "the chain of samplers")


def test_kept_and_removed_tokens_are_the_whole_vocabulary() -> None:
    ledger = make_small_ledger()
    [removal] = ledger.completions[0].entries[1].removed
    changed = change(ledger, 1, removed=(replace(removal, count=removal.count + 1),))
    [found] = replay_ledger(changed).mismatches
    assert (found.where, found.what) == ("token 2", "the number of kept tokens")


def test_the_model_s_own_text_and_removals_are_compared() -> None:
    ledger = make_small_ledger()
    (first,) = ledger.completions
    [removal] = first.entries[1].removed
    for changed, what in (
        (replace(ledger, completions=(replace(first, text="another"),)), "its text"),
        (change(ledger, 1, removed=(replace(removal, mass=removal.mass / 2),)), "what was removed"),
    ):
        [found] = replay_ledger(changed, lambda request: [first]).mismatches
        assert found.what == what


def test_another_seed_follows_for_no_token() -> None:
    done = replay_ledger(replace(make_small_ledger(), seed=8))
    assert sum(one.what == "u" for one in done.mismatches) == 6


def test_another_token_is_not_the_one_that_u_falls_on() -> None:
    ledger = make_small_ledger()
    entry = ledger.completions[0].entries[3]
    other = other_candidate(entry)
    whats = [one.what for one in replay_ledger(change(ledger, 3, id=other)).mismatches]
    assert "the token" in whats


def test_a_probability_and_a_normalizer_follow_from_the_scores() -> None:
    ledger = make_small_ledger()
    entry = ledger.completions[0].entries[0]
    listed = list(entry.candidates)
    listed[1] = replace(listed[1], probability=listed[1].probability + 1e-9)
    assert len(replay_ledger(change(ledger, 0, candidates=tuple(listed))).mismatches) == 1
    whats = [one.what for one in replay_ledger(change(ledger, 0, log_normalizer=1.0)).mismatches]
    assert whats[0].startswith("the probability") and "log_normalizer" in whats


def test_rounding_of_another_machine_is_not_a_mismatch() -> None:
    ledger = make_small_ledger()
    entry = ledger.completions[0].entries[0]
    listed = list(entry.candidates)
    place = next(i for i, one in enumerate(listed) if one.id != entry.id)
    listed[place] = replace(listed[place], probability=next_float(listed[place].probability))
    done = replay_ledger(change(ledger, 0, candidates=tuple(listed)))
    assert not done.mismatches
    assert done.exact == done.numbers - 1
    assert "1 number within rounding" in str(done) or "within rounding" in str(done)


def test_candidates_out_of_order_are_found() -> None:
    ledger = make_small_ledger()
    entry = ledger.completions[0].entries[1]
    swapped = (entry.candidates[1], entry.candidates[0], *entry.candidates[2:])
    whats = [one.what for one in replay_ledger(change(ledger, 1, candidates=swapped)).mismatches]
    assert "the order of the candidates" in whats


def test_entropy_and_surprisal_follow_where_the_whole_vocabulary_is_listed() -> None:
    ledger = make_small_ledger(top_k=8)
    entry = ledger.completions[0].entries[0]
    assert replay_ledger(change(ledger, 0, entropy=entry.entropy + 1e-6)).mismatches
    assert replay_ledger(change(ledger, 0, surprisal=entry.surprisal + 1e-6)).mismatches


@pytest.mark.parametrize(("field", "value"), [("score", -0.1), ("penalty", 3.0), ("final", 0.0)])
def test_a_wrong_number_of_a_beam_is_found(field: str, value: float) -> None:
    ledger = make_beam_ledger()
    beams = list(ledger.beams)
    beams[3] = replace(beams[3], **{field: value})  # type: ignore[arg-type]
    assert "node 3" in replay_ledger(replace(ledger, beams=tuple(beams))).mismatches[0].where


def test_a_beam_that_should_have_been_kept_is_found() -> None:
    ledger = make_beam_ledger()
    beams = list(ledger.beams)
    beams[1], beams[2] = replace(beams[1], fate="pruned"), replace(beams[2], fate="kept")
    assert replay_ledger(replace(ledger, beams=tuple(beams))).mismatches


def test_a_wrong_count_of_accepted_proposals_is_found() -> None:
    ledger = make_speculative_ledger()
    first = ledger.completions[0]
    wrong = replace(first, speculative=(replace(first.speculative[0], accepted=1),))
    [found] = replay_ledger(replace(ledger, completions=(wrong,))).mismatches
    assert (found.what, found.recorded, found.computed) == ("accepted", 1, 2)


def test_the_shortenings_of_a_full_context_follow_from_its_rule() -> None:
    """A context of 4: prompt 2, after two new tokens it is full, and the fifth token makes it too long."""
    ledger = make_small_ledger()
    ledger = replace(
        ledger,
        model=replace(ledger.model, context_length=4),
        sampling=replace(ledger.sampling, context="crop"),
    )
    [found] = replay_ledger(ledger).mismatches
    assert found.computed == (Shortening(0, 3, 3, 2),)
    assert not replay_ledger(replace(ledger, shortenings=found.computed)).mismatches
    ids = ledger.completions[0].ids
    assert ledger.read_context(0, 2) == (0, 1, *ids[:2])
    assert ledger.read_context(0, 3) == ids[1:3]


def test_with_a_model_every_entry_is_compared() -> None:
    ledger = make_small_ledger()
    requests: list[Request] = []

    def run(request: Request) -> list[Completion]:
        requests.append(request)
        return list(ledger.completions)

    done = replay_ledger(replace(ledger, sampling=replace(ledger.sampling, seed=None)), run)
    assert not done.mismatches and done.has_model
    assert (requests[0].sampling.seed, requests[0].ledger) == (ledger.seed, True)
    other = change(ledger, 2, logit=0.5).completions
    [found] = replay_ledger(ledger, lambda request: list(other)).mismatches
    assert (found.what, found.computed) == ("logit", 0.5)
