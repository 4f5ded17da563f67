"""Checks how a prompt begins and how a conversation is written: the bos token and the chat template."""

import contextlib
import importlib.util
import json
from collections.abc import Sequence
from typing import Any

from pellucid.base.errors import PellucidError, TokenError
from pellucid.generation.chat import open_chat
from pellucid.text.chat_template import Chat
from pellucid.text.prompts import encode_start
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.second_readers import read_header
from pellucid.verification.checks.outside.llamacpp_answers import ask_llamacpp
from pellucid.verification.checks.outside.tokens import SETTINGS, is_gguf, open_outside
from pellucid.verification.checks.outside.witnesses import (
    CONVERSATION,
    SHORT,
    Departure,
    Witness,
    join,
    judge_departure,
)
from pellucid.verification.verdict import Finding, Verdict

Start = tuple[int, ...] | None
"""The ids in front of a text's own; None where those are not found."""
BOS, TEMPLATE, ASKING, IDS = "tokenizer.bos", "chat template", "generation prompt", "chat template ids"


# ---- bos


def measure_bos(subject: Subject) -> Finding:
    """Compares the ids in front of a text's own with those that the tokenizer's configuration asks for."""
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    try:
        plain = tokenizer.encode(SHORT)
        prompts = (subject.model.encode(SHORT), encode_start(subject.model, SHORT))
    except TokenError:
        return Finding(Verdict.SKIPPED, "its tokenizer cannot encode English")
    said = _list_configured(subject, tokenizer)
    if not said:
        missing = open_outside(subject)[1]
        return Finding(Verdict.SKIPPED, "; ".join(missing) or "no file says whether it adds bos")
    decides, wanted = said[0]
    shown = _describe(tokenizer, wanted)
    departing = [f"{name} adds {_describe(tokenizer, start)}" for name, start in said if start != wanted]
    for ids in prompts:
        if (ours := _find_start(ids, plain)) != wanted:
            message = f"a prompt begins with {_describe(tokenizer, ours)}, and by {decides} with {shown}"
            measured = f"{_describe(tokenizer, ours)} for {shown}"
            return Finding(Verdict.BUG, measured, BOS, "\n".join([message, *departing]))
    agreeing = join([name for name, start in said if start == wanted])
    return Finding(Verdict.EQUAL, "; ".join([f"{shown} in front of a text, by {agreeing}", *departing]))


def _list_configured(subject: Subject, tokenizer: Tokenizer) -> list[tuple[str, Start]]:
    """Returns what each party puts in front of a text, the one that decides first: llama.cpp of a GGUF file,
    or its own key; of a folder tokenizer.json where it adds tokens, else add_bos_token, else transformers."""
    heard: dict[str, Start] = {}
    for program in open_outside(subject)[0]:
        plain, whole = program.encode(SHORT), program.begin(SHORT)
        if plain is not None and whole is not None and program.is_of_the_file:
            heard[program.name] = _find_start(whole, plain)
    bos = None if tokenizer.special.bos is None else tokenizer.id_of(tokenizer.special.bos)
    setting = None if bos is None else _read_setting(subject)
    named: dict[str, Start] = {}
    if setting is not None and bos is not None:
        named[setting[0]] = (bos,) if setting[1] else ()
    if is_gguf(subject):
        return [*heard.items(), *named.items()]
    file = heard.pop("the tokenizers library", None)
    by_file: list[tuple[str, Start]] = [] if file is None else [("tokenizer.json", file)]
    others = [*named.items(), *heard.items()]
    return [*by_file, *others] if file else [*others, *by_file]


def _read_setting(subject: Subject) -> tuple[str, bool] | None:
    """Returns the key that says whether a text begins with bos, where the file has it."""
    path, key = subject.model.pretrained.provenance.path, "tokenizer.ggml.add_bos_token"
    if is_gguf(subject):
        value = read_header(path).scalar(key)
        return None if value is None else (key, bool(value))
    if not (path / SETTINGS).is_file():
        return None
    value = json.loads((path / SETTINGS).read_text("utf-8")).get("add_bos_token")
    return (f"add_bos_token of {SETTINGS}", value) if isinstance(value, bool) else None


def _find_start(whole: Sequence[int], plain: Sequence[int]) -> Start:
    """Returns the ids in front of a text's own ids, None where these are not found."""
    for at in range(len(whole) - len(plain) + 1):
        if list(whole[at : at + len(plain)]) == list(plain):
            return tuple(whole[:at])
    return None


def _describe(tokenizer: Tokenizer, start: Start) -> str:
    if start is None:
        return "other ids than those of the text"
    return " ".join(tokenizer.token(id) for id in start) or "nothing"


# ---- chat template


def measure_template(subject: Subject) -> Finding:
    """Compares a conversation as the template writes it, and its ids, with transformers' rendering."""
    opened = subject.model.pretrained
    if opened.chat_template is None or opened.tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no chat template")
    if importlib.util.find_spec("jinja2") is None:
        return Finding(Verdict.SKIPPED, "chat templates need jinja2: pip install 'pellucid[chat]'")
    programs, missing = open_outside(subject)
    theirs = next((program.library for program in programs if program.library is not None), None)
    if theirs is None:
        return Finding(Verdict.SKIPPED, "; ".join(missing) or "transformers cannot be asked")
    try:
        chat = open_chat(subject.model)
    except PellucidError as error:  # it needs jinja2, and a tokenizer that encodes piece by piece
        return Finding(Verdict.SKIPPED, str(error))
    with chat:
        return _compare_template(subject, chat, theirs, opened.tokenizer)


def _compare_template(subject: Subject, chat: Chat, theirs: Any, tokenizer: Tokenizer) -> Finding:
    compared = 0
    for messages in (CONVERSATION, CONVERSATION[1:]):  # some templates refuse a system's message
        renderings = (_render_theirs(theirs, messages, asking) for asking in (False, True))
        if len(wanted := [text for text in renderings if text is not None]) < 2:
            continue
        compared += 1
        try:
            departure = _compare_prompts(chat, messages, wanted, tokenizer)
        except PellucidError as error:
            departure = Departure(TEMPLATE, str(error), "it cannot be rendered")
        if departure:
            return _judge_rendering(subject, chat, messages, departure)
    if not compared:
        return Finding(Verdict.SKIPPED, "transformers cannot render its template")
    return Finding(Verdict.EQUAL, f"{2 * compared} renderings, text and ids, as by transformers")


def _render_theirs(theirs: Any, messages: Sequence[dict[str, str]], asking: bool) -> str | None:
    try:
        return str(theirs.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=asking))
    except Exception:  # a template may refuse a conversation
        return None


def _compare_prompts(
    chat: Chat, messages: Sequence[dict[str, str]], wanted: Sequence[str], tokenizer: Tokenizer
) -> Departure | None:
    """Returns where our rendering without and with the generation prompt departs, in its text or its ids."""
    for asking, text in zip((False, True), wanted, strict=True):
        ours = chat.template.render(messages, asking)
        if ours != text:
            message = f"ours ends in {ours[-80:]!r}\ntransformers' in {text[-80:]!r}"
            return Departure(ASKING if asking else TEMPLATE, message)
        ids, others = chat.prompt(messages, asking), tokenizer.encode(text, parse_special=True)
        if ids != others:
            at = next((i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), len(others))
            message = (
                f"from token {at}: a conversation has {ids[at : at + 5]}, its text {others[at : at + 5]}"
            )
            return Departure(IDS, message)
    return None


def _judge_rendering(
    subject: Subject, chat: Chat, messages: Sequence[dict[str, str]], departure: Departure
) -> Finding:
    """Returns the finding, after llama.cpp was heard, which renders the whole conversation."""
    if departure.at == IDS:
        return Finding(Verdict.BUG, "other ids", IDS, departure.message)
    answers = ask_llamacpp(subject)
    others = [Witness("llama.cpp", None, "cannot be asked")]
    if not isinstance(answers, str) and all(answers.prompts) and messages is CONVERSATION and answers.prompts:
        with contextlib.suppress(PellucidError):
            ours = [chat.template.render(messages, asking) for asking in (False, True)]
            others = [Witness("llama.cpp", ours == answers.prompts)]
    return judge_departure("transformers", departure, True, others, backing=())
