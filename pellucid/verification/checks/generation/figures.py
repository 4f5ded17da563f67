"""Checks the figures that a reader sees beside a token, in a ledger and in a server's answer, against their
definitions (`definitions.py`) for the logits that the engine computed."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.transformer import Transformer
from pellucid.generation.answers.alignment import ChoicePieces, score_prompt
from pellucid.generation.answers.lines import PromptScores, StepLine, format_step, parse_step
from pellucid.generation.answers.logprobs import (
    TokenTexts,
    make_chat_logprobs,
    make_completion_logprobs,
    make_explained_tokens,
)
from pellucid.generation.ledger.file import make_file_data
from pellucid.generation.ledger.ledger import make_ledger
from pellucid.generation.request import Completion, Request, Token
from pellucid.generation.samplers.own_probabilities import TopLogprobs
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.reference.op import Array
from pellucid.verification.checks.check import ReducedModel, Subject, gives_finite_logits
from pellucid.verification.checks.generation.definitions import (
    TextSoFar,
    define_entropy,
    define_logprobs,
    define_rank,
    find_wrong_entry,
    find_wrong_top,
    is_near,
)
from pellucid.verification.checks.generation.sampling import (
    NEW,
    NOT_FINITE,
    PROMPT,
    VOCABULARY,
    choose_temperature,
    count_first,
    explain_no_room,
    record_logits,
)
from pellucid.verification.verdict import Finding, Verdict

TOP = 5
LEAST = -9999.0
"""A server's answer has it in place of every ln p below it, since JSON has no −∞."""
PRINTED = re.compile(r"rank ([\d,]+)\n  surprisal ([-\d.]+) nats, entropy ([-\d.]+) nats")
"""The figures that `Ledger.why` prints of a token."""


@dataclass(frozen=True)
class RecordedText:
    """One text with all that can be asked for beside it, and the logits of each of its tokens but the
    first, [T − 1, V]."""

    request: Request
    text: Completion
    tokens: Sequence[Token]
    prompt_logprobs: Sequence[float]
    prompt_tops: Sequence[TopLogprobs]
    logits: Array

    @property
    def new_logits(self) -> Array:
        """The rows of the new tokens."""
        return self.logits[len(self.request.prompt) - 1 :]


@dataclass(frozen=True)
class Mistake:
    """A figure that is not what its definition gives."""

    where: str
    message: str


def measure_figures(subject: Subject) -> Finding:
    """Generates a few tokens greedily, then by several samplers, and judges every figure of them."""
    config = subject.config
    if why := explain_no_room(config):
        return Finding(Verdict.SKIPPED, why)
    first = count_first(config)
    model = ReducedModel(subject, layers=1, vocabulary=VOCABULARY, context=max(PROMPT, first) + NEW)
    dtypes = dict.fromkeys((getattr(torch, subject.model.dtype), torch.float32))
    module = next((one for one in map(model.module, dtypes) if gives_finite_logits(one)), None)
    if module is None:
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    new = min(NEW, config.context_length - first)
    prompt = model.ids(max(first, min(PROMPT, config.context_length - new)))
    sampling, judged = Sampling(max_new_tokens=new, stop_ids=(), seed=17), 0
    for _ in range(2):
        try:
            run = record_run(module, prompt, sampling)
        except PellucidError as error:
            return Finding(Verdict.BUG, "a request failed", "figures", str(error))
        for mistake in (*judge_ledger(subject, run), *judge_answer(run)):
            text = f"{mistake.message}.\nAfter a prompt of {len(prompt)} tokens with {sampling!r}."
            return Finding(Verdict.BUG, "another figure", mistake.where, text)
        sampling, judged = _make_chain(run), judged + len(run.tokens)
    return Finding(Verdict.EQUAL, f"all figures of {judged} tokens, in a ledger and in a server's answers")


def _make_chain(greedy: RecordedText) -> Sampling:
    """Returns settings of which every sampler removes tokens or moves probabilities, for the same prompt."""
    logits = greedy.new_logits[0]
    order = np.argsort(-logits, kind="stable")
    return replace(
        greedy.request.sampling,
        temperature=choose_temperature(logits[order]),
        repetition_penalty=1.3,
        top_k=max(1, min(40, len(order) - 1)),
        top_p=0.9,
        min_p=0.05,
        banned_tokens=(int(order[0]),) if len(order) > 1 else (),
    )


def record_run(module: Transformer, prompt: Sequence[int], sampling: Sampling) -> RecordedText:
    """Returns a text with its figures, and the logits of each of the engine's forward passes."""
    engine = Engine(module, slots=1, capacity=len(prompt) + (sampling.max_new_tokens or 0))
    rows = record_logits(engine)
    asked: dict[str, Any] = dict.fromkeys(("logprobs", "ledger", "prompt_logprobs", "uncertainty"), True)
    handle = engine.add(Request(tuple(prompt), sampling, top_logprobs=TOP, **asked))
    tokens = list(handle)
    [text] = handle.result()
    logprobs, tops = handle.prompt_logprobs, handle.prompt_tops
    return RecordedText(handle.request, text, tokens, logprobs, tops, np.concatenate(rows))


# ---- the ledger


def judge_ledger(subject: Subject, run: RecordedText) -> Iterator[Mistake]:
    """Yields what is wrong in the file of a ledger, and in what it prints."""
    sampling, prompt = run.request.sampling, run.request.prompt
    ledger = make_ledger(subject.model, run.request, [run.text])
    [completion] = json.loads(json.dumps(make_file_data(ledger)))["completions"]
    for at, (entry, logits) in enumerate(zip(completion["entries"], run.new_logits, strict=True)):
        text = TextSoFar(prompt, run.text.ids[:at], sampling.stop_ids or ())
        if wrong := find_wrong_entry(entry, logits, sampling, text):
            yield Mistake(f"ledger.{wrong.split()[0]}[token={at}]", f"in a ledger, {wrong}")
    yield from _judge_printed(ledger.why(1), run.new_logits[0], run.text.ids[0])


def _judge_printed(lines: str, logits: Array, id: int) -> Iterator[Mistake]:
    """Yields the figures of the first token that are printed otherwise than they are defined."""
    found = PRINTED.search(lines)
    rank, *nats = ("?", "nan", "nan") if found is None else found.groups()
    if rank != f"{define_rank(logits, id):,}":
        yield Mistake("printed ledger.rank", f"rank {rank} is printed for {define_rank(logits, id):,}")
    wanted = -float(define_logprobs(logits)[id]), define_entropy(logits)
    for name, got, right in zip(("surprisal", "entropy"), map(float, nats), wanted, strict=True):
        if not abs(got - right) <= 0.51e-4:  # four decimals
            yield Mistake(f"printed ledger.{name}", f"{name} {got} nats is printed for {right:.6f}")


# ---- a server's answer


def judge_answer(run: RecordedText) -> Iterator[Mistake]:
    """Yields what is wrong in the tables of a server's answers, of the prompt and of the new tokens, after
    their line between its two processes."""
    choice, prompt = ChoicePieces(0, 0, lists_tokens=True), run.request.prompt
    pieces = [piece for token in run.tokens if (piece := choice.add([token])) is not None]
    scores = PromptScores(0, score_prompt(None, prompt, run.prompt_logprobs, run.prompt_tops))
    line = parse_step(format_step(StepLine(pieces, [scores], [], 1, 0)))
    texts = TokenTexts(None)  # each token's text is its id
    [asked] = line.prompts
    tokens = [token for piece in line.pieces for token in piece.tokens or ()]
    for what, ids, listed, rows in (
        ("prompt", prompt, asked.tokens, run.logits[: len(prompt) - 1]),
        ("answer", run.text.ids, tokens, run.new_logits),
    ):
        if [token.id for token in listed] != list(ids):
            message = f"it lists the tokens {[token.id for token in listed]} for {list(ids)}"
            yield Mistake(f"{what}.tokens", message)
            return
        first = 1 if what == "prompt" else 0
        plain = make_completion_logprobs(texts, listed, 0)
        chat = make_chat_logprobs(texts, listed, 0)["content"]
        if first and (plain["token_logprobs"][0], chat[0]["logprob"]) != (None, None):
            yield Mistake(f"{what}.token_logprobs[token=0]", "the first token of a prompt has a ln p")
        for at, logits in enumerate(rows, start=first):
            yield from _judge_row(what, at, ids[at], logits, plain, chat)
        if what == "answer":
            yield from _judge_explained(make_explained_tokens(texts, listed), ids, rows)


def _judge_row(
    what: str, at: int, id: int, logits: Array, plain: dict[str, list[Any]], chat: list[dict[str, Any]]
) -> Iterator[Mistake]:
    """Yields what is wrong with the token at a place of both endpoints' tables."""
    wanted = max(float(define_logprobs(logits)[id]), LEAST)
    named = {"token_logprobs": plain["token_logprobs"][at], "chat.logprob": chat[at]["logprob"]}
    for name, got in named.items():
        if not is_near(got, wanted):
            yield Mistake(f"{what}.{name}[token={at}]", f"ln p of token {id} is {got!r} for {wanted:.8g}")
    table = [(int(key[1:]), value) for key, value in plain["top_logprobs"][at].items()]
    if (id, plain["token_logprobs"][at]) not in table:
        yield Mistake(f"{what}.top_logprobs[token={at}]", f"token {id} itself is not among the listed ones")
    if len(table) > min(TOP, len(logits)):  # it is listed also where it is not one of the most probable
        table = [pair for pair in table if pair[0] != id]
    tops = {
        "top_logprobs": table,
        "chat.top_logprobs": [(int(one["token"][1:]), one["logprob"]) for one in chat[at]["top_logprobs"]],
    }
    for name, top in tops.items():
        if wrong := find_wrong_top(top, logits, TOP, LEAST):
            yield Mistake(f"{what}.{name}[token={at}]", wrong)


def _judge_explained(
    listed: Sequence[dict[str, Any]], ids: Sequence[int], rows: Sequence[Array] | Array
) -> Iterator[Mistake]:
    for at, (one, id, logits) in enumerate(zip(listed, ids, rows, strict=True)):
        wanted = {
            "entropy": define_entropy(logits),
            "rank": define_rank(logits, id),
            "surprisal": min(-float(define_logprobs(logits)[id]), -LEAST),
        }
        for name, right in wanted.items():
            if not is_near(one[name], right):
                yield Mistake(f"answer.explain.{name}[token={at}]", f"{name} is {one[name]!r} for {right!r}")
