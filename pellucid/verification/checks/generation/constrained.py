"""Checks constrained decoding: masks of allowed tokens against a search through all texts, texts of random
tokens of the model's own tokenizer, and generated texts, whether the model wants to end at once or never."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.data.generated.stories.grammar import GrammarError
from pellucid.data.generated.stories.parse import parse
from pellucid.data.sources.generated import END, spaced_words
from pellucid.engine.transformer import Transformer
from pellucid.generation.constraints import compile_constraint
from pellucid.generation.constraints.token_mask import Constraint
from pellucid.generation.handle import Handle
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.text.word_level import CharacterTokenizer
from pellucid.verification.checks.check import ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.constraint_cases import (
    CASES,
    MASK_CASES,
    OWN_CASES,
    TOKENS,
    ConstraintCase,
    MaskCase,
)
from pellucid.verification.checks.generation.sampling import CANNOT_GENERATE, NOT_FINITE
from pellucid.verification.verdict import Finding, Verdict

STOP = "<end>"
MORE = 4
"""New tokens that a text may have beyond the characters of the shortest one."""
BIAS = 1e5
"""Added to the logit of the stop token, or taken from it: the text ends as soon, or as late, as it may."""
AMPLE = 1000
"""New tokens that suffice for every text of a `MaskCase`."""
SLOTS = 16
STORIES, WALKS = "tiny", 4
"""The level of stories that are generated word by word, and how many."""


def measure_constrained(subject: Subject) -> Finding:
    """Judges the masks, which need no model, then texts in the tokens of the model's tokenizer, and those
    that the first block gives in the tokens of `TOKENS`."""
    compared = 0
    for given in MASK_CASES:
        found = compare_masks(given)
        if isinstance(found, Finding):
            return found
        compared += found
    walked = judge_walks(subject.model.pretrained.tokenizer, subject.model.eos_ids)
    stories = judge_stories()
    for judged in (walked, stories):
        if isinstance(judged, Finding):
            return judged
    masks = f"{compared} masks; {walked}; {stories}"
    config, prefix = subject.config, subject.config.mask.bidirectional_prefix
    if prefix > config.context_length:
        return Finding(Verdict.EQUAL, f"{masks}; {CANNOT_GENERATE}")
    first = max(1, int(prefix))
    cases = [case for case in CASES if first + len(case.example) + MORE <= config.context_length]
    if config.vocab_size < len(TOKENS):
        reason = f"no texts: they take {len(TOKENS)} tokens, and it has {config.vocab_size}"
        return Finding(Verdict.EQUAL, f"{masks}; {reason}")
    if not cases:
        return Finding(Verdict.EQUAL, f"{masks}; its context has no room for a text")
    longest = max(len(case.example) for case in cases) + MORE
    model = ReducedModel(subject, layers=1, vocabulary=len(TOKENS), context=first + longest)
    module = model.module(torch.float32)
    if not gives_finite_logits(module):
        return Finding(Verdict.EQUAL, f"{masks}; {NOT_FINITE}")
    count = 0
    for case, sampling, handle in add_requests(module, model.ids(first), cases):
        try:
            [text] = handle.result()
        except PellucidError as error:
            return Finding(Verdict.BUG, "a request failed", f"constrained.text[{case.name}]", str(error))
        if not case.accepts(text.text):
            return _describe_text(case, sampling, text)
        count += 1
    return Finding(Verdict.EQUAL, f"{masks}; {count} texts of {len(cases)} constraints")


# ---- texts


def add_requests(
    module: Transformer, prompt: list[int], cases: list[ConstraintCase]
) -> list[tuple[ConstraintCase, Sampling, Handle]]:
    """Returns two requests for every case: of a model that would end at once, and of one that would never."""
    tokenizer = CharacterTokenizer(TOKENS, Special(eos=STOP))
    engine = Engine(module, tokenizer, stop_ids=[TOKENS.index(STOP)], slots=SLOTS)
    planned = [
        (
            case,
            Sampling(
                **case.settings,
                temperature=1.0,
                seed=seed,
                max_new_tokens=len(case.example) + MORE,
                logit_bias={TOKENS.index(STOP): bias},
            ),
        )
        for seed, case in enumerate(cases)
        for bias in (BIAS, -BIAS)
    ]
    return [
        (case, sampling, engine.add(Request(tuple(prompt), sampling), streams=False))
        for case, sampling in planned
    ]


def _describe_text(case: ConstraintCase, sampling: Sampling, text: Completion) -> Finding:
    wish = "as soon" if sampling.logit_bias[TOKENS.index(STOP)] > 0 else "as late"
    message = (
        f"{case.name} allows {case.example!r} and not {text.text!r}, which has {len(text.ids)} of at most "
        f"{sampling.max_new_tokens} tokens, ended by {text.finish}, and was to end {wish} as it may"
    )
    return Finding(Verdict.BUG, repr(text.text), f"constrained.text[{case.name}]", message)


# ---- the model's own tokenizer


def judge_walks(tokenizer: Tokenizer | None, stop: Sequence[int]) -> Finding | str:
    """Returns how many texts of random allowed tokens are right by the tokenizer's own decoding; the finding
    at the first that is not."""
    if tokenizer is None:
        return "it has no tokenizer"
    done = 0
    for case in OWN_CASES:
        try:
            constraint = compile_constraint(Sampling(**case.settings), tokenizer, tokenizer.vocab_size, stop)
            assert constraint is not None
        except (TokenError, UsageError):  # these tokens cannot spell it, or their texts depend on each other
            continue
        try:
            ids = walk_masks(constraint, stop)
        except PellucidError as error:
            return Finding(Verdict.BUG, "no text", f"constrained.tokenizer[{case.name}]", str(error))
        if not case.accepts(text := tokenizer.decode(ids)):
            message = f"{case.name} allows {case.example!r} and not {text!r}, the text of the tokens {ids}"
            return Finding(Verdict.BUG, repr(text), f"constrained.tokenizer[{case.name}]", message)
        done += 1
    return f"{done} of {len(OWN_CASES)} texts in its own tokens"


def judge_stories() -> Finding | str:
    """Returns how many stories of random allowed words the parser of the grammar reads; the finding at the
    first that it does not. The fewest words are given, and some more."""
    tokenizer = spaced_words(STORIES)
    stop = [end for end in (tokenizer.id_of(END),) if end is not None]
    name = f"stories:{STORIES}"
    for seed in range(WALKS):
        try:
            constraint = compile_constraint(Sampling(grammar=name), tokenizer, tokenizer.vocab_size, stop)
            assert constraint is not None
            ids = walk_masks(constraint, stop, seed)
        except PellucidError as error:
            return Finding(Verdict.BUG, "no story", f"constrained.grammar[{name}]", str(error))
        try:
            parse(STORIES, text := tokenizer.decode(ids))
        except GrammarError as error:
            message = f"{name} gives {text!r}, which its parser does not read: {error}"
            return Finding(Verdict.BUG, repr(text), f"constrained.grammar[{name}]", message)
    return f"{WALKS} stories"


def walk_masks(constraint: Constraint, stop: Sequence[int], seed: int = 0) -> list[int]:
    """Returns random tokens of the masks, without a stop token."""
    rng, state, ids = np.random.default_rng(seed), constraint.start, list[int]()
    left = constraint.count_needed(state) + MORE
    while left and not constraint.must_end(state, left):
        id = int(rng.choice(np.flatnonzero(constraint.compute_mask(state, left))))
        if id in stop:
            break
        state, left = constraint.advance(state, id), left - 1
        ids.append(id)
    return ids


# ---- masks


def compare_masks(given: MaskCase) -> Finding | int:
    """Returns how many masks were compared, of every state that tokens lead to and of several numbers of
    tokens that are left; the finding at the first that is wrong.

    Where every character is a token, the tokens of the shortest text are counted, which may be more than the
    fewest: then a mask may lack tokens that would suffice.
    """
    case, tokens = given.case, given.tokens
    tokenizer = CharacterTokenizer((STOP, *tokens), Special(eos=STOP))
    try:
        constraint = compile_constraint(Sampling(**case.settings), tokenizer, len(tokens) + 1, [0])
    except PellucidError as error:
        return Finding(Verdict.BUG, "no masks", f"constrained.mask[{case.name}]", str(error))
    assert constraint is not None
    is_exact = not {bytes([byte]) for token in tokens for byte in token.encode()} <= {
        token.encode() for token in tokens
    }
    search = TextSearch(given)
    waiting, seen = [("", constraint.start)], {""}
    compared = 0
    while waiting:
        text, state = waiting.pop()
        for left in (*range(1, given.longest + 2), AMPLE):
            wanted = [case.accepts(text), *(search(text + token, left - 1) for token in tokens)]
            mask = constraint.compute_mask(state, left).tolist()
            is_subset = all(right for right, got in zip(wanted, mask, strict=True) if got)
            is_sure = constraint.count_needed(state) <= left and not constraint.must_end(state, left)
            if not (mask == wanted if is_exact or left == AMPLE else is_subset and any(mask) >= is_sure):
                return _describe_mask(given, text, left, mask, wanted)
            compared += 1
        for id, token in enumerate(tokens, start=1):
            if text + token not in seen and search(text + token, AMPLE):
                seen.add(text + token)
                waiting.append((text + token, constraint.advance(state, id)))
    return compared


class TextSearch:
    """A search, by trying all, for whether a text can be completed with at most `left` more tokens."""

    def __init__(self, given: MaskCase) -> None:
        self.given, self._try = given, cache(self._try_all)

    def __call__(self, text: str, left: int) -> bool:
        return self._try(text, min(left, self.given.longest))

    def _try_all(self, text: str, left: int) -> bool:
        if left < 0 or len(text) > self.given.longest:
            return False
        return self.given.case.accepts(text) or any(
            self._try(text + token, left - 1) for token in self.given.tokens if left
        )


def _describe_mask(given: MaskCase, text: str, left: int, mask: list[bool], wanted: list[bool]) -> Finding:
    names = (STOP, *given.tokens)
    allowed, right = (
        [name for name, is_in in zip(names, row, strict=True) if is_in] for row in (mask, wanted)
    )
    message = (
        f"after {text!r}, with {left} tokens left, {given.case.name} allows {allowed}; of all texts "
        f"some goes on with {right}"
    )
    return Finding(
        Verdict.BUG,
        f"{len(allowed)} for {len(right)} tokens",
        f"constrained.mask[{given.case.name}]",
        message,
    )
