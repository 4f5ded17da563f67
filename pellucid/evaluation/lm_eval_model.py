"""A model as lm-eval runs it, for tasks that its harness defines; needs the extra `pellucid[eval]`.

    from lm_eval import simple_evaluate
    from pellucid.evaluation.lm_eval_model import LmEvalModel
    simple_evaluate(model=LmEvalModel(pellucid.load("smollm2")), tasks=["my_task"], task_manager=…)

lm-eval splits and normalizes; log-likelihoods come from `evaluation/continuations.py`, texts from the engine.
"""

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from pellucid.base.errors import TokenError, UsageError
from pellucid.evaluation.continuations import ContinuationScore, EncodedPair, score_continuations
from pellucid.evaluation.scoring import Journal
from pellucid.generation.chat import open_chat
from pellucid.generation.generate import complete, make_engine
from pellucid.generation.request import Request
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.chat_template import Chat

if TYPE_CHECKING:
    from pellucid.model import Model

Found = TypeVar("Found")
MAX_NEW_TOKENS = 256
"""Where a task does not say `max_gen_toks`; lm-eval's own default."""


class LmEvalModel(TemplateLM):
    """An `lm_eval.api.model.LM` that computes with a model of ours.

    Special tokens in a text, such as <|im_start|>, are ordinary text until lm-eval has asked for the model's
    chat template, whose special tokens are parsed.
    """

    def __init__(
        self,
        model: "Model",
        journal: Journal | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Takes a model; log-likelihoods in the `journal` are not computed again. `progress` is called with
        the tokens of the requests so far, and of all; without it tqdm shows the requests."""
        super().__init__()
        self._progress = progress
        self._journal = journal
        self.model = model
        self._chat: Chat | None = None
        self.truncated: set[str] = set()
        """The contexts that lost their beginning, because they did not fit the model's context."""

    # ---- tokens

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return next(iter(self.model.eos_ids), self.prefix_token_id)

    @property
    def prefix_token_id(self) -> int:
        """The token that a text begins with, where its context is empty."""
        if (start := self.model.pretrained.start_id) is None:
            raise TokenError(
                f"{self.model.name} has no token with which a text begins, and a task has an empty context."
            )
        return start

    @property
    def max_length(self) -> int:
        return self.model.config.context_length

    @property
    def max_gen_toks(self) -> int:
        return MAX_NEW_TOKENS

    @property
    def tokenizer_name(self) -> str:
        return self.model.short_name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **more: Any) -> list[int]:
        """Returns the ids of a text, with the bos token in front where the model wants one and the text,
        written by a chat template, does not begin with it already."""
        is_rendered = self._chat is not None
        ids = self.model.tokenizer.encode(string, parse_special=is_rendered)
        bos = self.model.pretrained.bos_ids if add_special_tokens is not False else []
        return ids if is_rendered and ids[:1] == bos else bos + ids

    # ---- log-likelihoods

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        return super().loglikelihood(requests, disable_tqdm or self._progress is not None)  # type: ignore[no-any-return]

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]],
        disable_tqdm: bool = False,
        **more: Any,
    ) -> list[tuple[float, bool]]:
        pairs = [(context or [self.prefix_token_id], ids) for _, context, ids in requests]
        found = []
        for (texts, _, _), score in zip(requests, self._score(pairs, disable_tqdm), strict=True):
            found.append((score.total, score.is_greedy))
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, found[-1])
            if texts is not None and score.n_dropped:
                self.truncated.add(texts[0])
        return found

    def _score(self, pairs: Sequence[EncodedPair], disable_tqdm: bool) -> Iterator[ContinuationScore]:
        scores = score_continuations(self.model.module, pairs, journal=self._journal)
        sizes = [len(context) + len(ids) for context, ids in pairs]
        return self._show(scores, "log-likelihoods", sizes, disable_tqdm)

    def _show(
        self, found: Iterable[Found], what: str, sizes: Sequence[int], disable_tqdm: bool
    ) -> Iterator[Found]:
        """Yields what is found for requests of these sizes in tokens, and shows how far it has come."""
        if self._progress is None:
            yield from tqdm(found, what, len(sizes), disable=disable_tqdm)
            return
        for one, done in zip(found, itertools.accumulate(sizes), strict=True):
            self._progress(done, sum(sizes))
            yield one

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Returns ln p of each text, in windows of the whole context as lm-eval defines them; the bos token
        is the first window's context and is not counted."""
        texts = [request.args[0] for request in requests]
        windows = [list(self._split_windows(text)) for text in texts]
        scores = self._score([pair for some in windows for pair in some], disable_tqdm)
        found = [sum(next(scores).total for _ in some) for some in windows]
        for text, total in zip(texts, found, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return found

    def _split_windows(self, text: str) -> Iterable[EncodedPair]:
        ids = self.tok_encode(text, add_special_tokens=False)
        windows = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, context_len=1)
        return map(make_disjoint_window, windows)

    # ---- texts

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Returns what follows each context, up to the first of its stop texts; greedy unless a task samples,
        then with the request's number as its seed."""
        asked = [self._read_request(number, *request.args) for number, request in enumerate(requests)]
        if not asked:
            return []
        engine = make_engine(self.model, asked, {})
        texts = []
        sizes = [len(one.prompt) + (one.sampling.max_new_tokens or 0) for one in asked]
        for done in self._show(complete(engine, asked), "texts", sizes, disable_tqdm):
            texts.append(done[0].text)
            self.cache_hook.add_partial("generate_until", requests[len(texts) - 1].args, texts[-1])
        return texts

    def _read_request(self, seed: int, context: str, settings: Mapping[str, Any]) -> Request:
        """Returns a request of lm-eval as one of ours; a context that is too long loses its beginning."""
        given = dict(normalize_gen_kwargs(dict(settings), self.max_gen_toks))
        count, stop = int(given.pop("max_gen_toks")), [text for text in given.pop("until") if text]
        if not given.pop("do_sample"):
            given["temperature"] = 0.0
        if (room := self.max_length - count) < 1:
            raise UsageError(
                f"a task asks for {count:,} new tokens (max_gen_toks), and {self.model.name} has a context "
                f"of {self.max_length:,}: no room is left for a prompt."
            )
        sampling = Sampling.read(
            given | {"max_new_tokens": count, "stop": stop, "seed": seed}, "generation_kwargs"
        )
        ids = self.tok_encode(context) or [self.prefix_token_id]
        if len(ids) > room:
            self.truncated.add(context)
        return Request(tuple(ids[-room:]), sampling)

    # ---- conversations

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns a conversation as the model's own template writes it; without a generation prompt its last
        message is the beginning of the answer."""
        if self._chat is None:
            self._chat = open_chat(self.model)
            weakref.finalize(self, self._chat.template.close)
        render = self._chat.template.render
        if add_generation_prompt:
            return render(chat_history, asking=True)
        return render(chat_history[:-1], asking=True) + chat_history[-1]["content"]

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.model.pretrained.chat_template if chat_template else None
