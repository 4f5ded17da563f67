"""A model: config, weights, tokenizer, the specification that explains it, the fast engine that runs it."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.config import ModelConfig
from pellucid.errors import AskedWrongly, ConfigError, TokenError
from pellucid.explain.derive import Derivation, derive
from pellucid.explain.trace import Trace
from pellucid.interop.number_types import number_type
from pellucid.interop.pretrained import Array, Pretrained
from pellucid.interop.rope_layout import in_layout
from pellucid.reference.ops.cross_entropy import IGNORED
from pellucid.reference.training import forward, join, train
from pellucid.text.tokenizer import Tokenizer
from pellucid.workbench.score import Score

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from torch import Tensor
    from torch import device as Device

    from pellucid.model.transformer import Transformer

DTYPES = ("float64", "float32", "bfloat16", "float16")
Prompt = str | Sequence[int]


class Model:
    """What `pellucid.load` returns."""

    def __init__(self, pretrained: Pretrained, device: str = "cpu", dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"no dtype called {dtype!r}; have {', '.join(DTYPES)}.")
        self.pretrained, self.device, self.dtype = pretrained, device, dtype

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str = "cpu", dtype: str = "float32") -> "Model":
        """`pellucid.load`, under the name that habit expects."""
        from pellucid.workbench.opening import load

        return load(name, device=device, dtype=dtype)

    @property
    def name(self) -> str:
        return self.pretrained.name

    @property
    def config(self) -> ModelConfig:
        return self.pretrained.config

    @property
    def tokenizer(self) -> Tokenizer:
        if self.pretrained.tokenizer is None:
            raise TokenError(
                f"{self.name} came without a tokenizer: give token ids, [1, 2, 3], instead of text."
            )
        return self.pretrained.tokenizer

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Every parameter under our name, as an array."""
        return dict(self.pretrained.weights)

    @cached_property
    def module(self) -> "Transformer":
        """The fast engine's model: a `torch.nn.Module` on the device, in the dtype asked for."""
        import torch

        from pellucid.model.transformer import Transformer

        return Transformer.from_weights(
            self.config, self.pretrained.weights, self.place(), getattr(torch, self.dtype)
        ).eval()

    def place(self) -> "Device":
        """The device, if it can be used here."""
        import torch

        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise AskedWrongly(f"the device {self.device!r} cannot be used here: {reason}.") from None
        return device

    # ---- text to ids

    def ids(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt as this model reads it, its bos token in front where it wants one."""
        if not isinstance(prompt, str):
            ids = _whole(prompt)
        else:
            tokenizer = self.tokenizer
            bos = tokenizer.id_of(tokenizer.special.bos) if tokenizer.special.bos else None
            start = [bos] if self.pretrained.add_bos and bos is not None else []
            ids = start + tokenizer.encode(prompt)
        if not ids:
            raise TokenError("the prompt is empty; give at least one token.")
        return ids

    def token(self, id: int) -> str:
        """One token as people should see it; its number where there is no tokenizer."""
        known = self.pretrained.tokenizer
        return known.token(id) if known and id < known.vocab_size else str(id)

    @property
    def stop(self) -> list[int]:
        """The tokens that end a text."""
        given = self.pretrained.generation.get("eos_token_id")
        if given is not None:
            return [given] if isinstance(given, int) else list(given)
        known = self.pretrained.tokenizer
        eos = known.id_of(known.special.eos) if known and known.special.eos else None
        return [] if eos is None else [eos]

    # ---- the fast engine

    def logits(self, ids: Any) -> "Tensor":
        """Scores [T V] of a list of ids, or [B T V] of several, the shorter ones padded on the right."""
        import torch

        batch, single = _rows(ids)
        longest, device = max(map(len, batch), default=0), self.module.device
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in batch], device=device)
        self.module.check(padded)
        real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch], device=device)
        padding = None if bool(real.all()) else real.bool()
        with torch.no_grad():
            logits: Tensor = self.module(padded, padding=padding)
        return logits[0] if single else logits

    def score(self, prompt: Prompt) -> Score:
        """The log-probability of every token of a text, given those before it."""
        import torch

        ids = self.ids(prompt)
        logits = self.logits(ids)
        chosen = torch.tensor(ids[1:], device=logits.device)
        found = torch.log_softmax(logits[:-1].double(), -1).gather(-1, chosen[:, None])[:, 0]
        return Score(ids, [self.token(id) for id in ids], [None, *found.tolist()])

    def generate(
        self, prompt: Prompt, max_new_tokens: int = 64, temperature: float = 0.0, seed: int | None = None
    ) -> Any:
        """What follows a text, as text; what follows a list of ids, as ids."""
        if isinstance(prompt, str):
            return "".join(self.stream(prompt, max_new_tokens, temperature, seed))
        return list(self.tokens(prompt, max_new_tokens, temperature, seed))

    def stream(
        self, prompt: str, max_new_tokens: int = 64, temperature: float = 0.0, seed: int | None = None
    ) -> Iterator[str]:
        """What follows a text, piece by piece as it is written; never half a character."""
        yield from self.decoded(prompt, self.tokens(prompt, max_new_tokens, temperature, seed))

    def decoded(self, prompt: str, tokens: Iterable[int]) -> Iterator[str]:
        """The text of tokens that follow a prompt, without those that end it; one piece for each token.

        A model may have more rows than its tokenizer has tokens; the rest have no text."""
        decoder, ends, known = self.tokenizer.stream(), self.stop, self.tokenizer.vocab_size
        for id in self.ids(prompt):  # a first word may need a blank before it
            decoder.feed(id)
        for id in tokens:
            yield "" if id in ends or id >= known else decoder.feed(id)
        yield decoder.end()

    def tokens(
        self, prompt: Prompt, max_new_tokens: int = 64, temperature: float = 0.0, seed: int | None = None
    ) -> Iterator[int]:
        """The ids that follow, one by one; the last may be a token that ends the text."""
        from pellucid.generation.loop import generate

        steps = generate(
            self.module,
            [self.ids(prompt)],
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            stop=self.stop,
        )
        return (row[0] for row in steps if row[0] is not None)

    # ---- every number

    def trace(
        self,
        prompt: Prompt,
        *,
        target: Prompt | None = None,
        backward: bool = False,
        update: str | None = None,
        steps: int = 1,
        lr: float = 1.0,
        path: str = "reference",
        **settings: Any,
    ) -> Trace:
        """Run the model on a prompt and keep every number.

        The ids of `target` follow the prompt; the loss is the mean over them. With `update` (sgd, adamw, …)
        the model is trained for `steps` updates with `settings` (only, clip, …), and VALUE@k is a value
        of the forward pass after k of them. `path` is the specification, or a path of the fast engine
        ("eager", "fused", "compiled"), whose own numbers then stand on the specification's program.
        """
        ids, targets = self._ids(prompt, target)
        if settings and not update:
            raise AskedWrongly(f'{min(settings)!r} belongs to an update: give update="sgd", for example.')
        if (backward or update) and targets is None:
            raise TokenError(
                "a gradient needs a loss, and a loss needs a target: give the text that should follow."
            )
        if update and path != "reference":
            raise AskedWrongly(f"an update is taken by the specification; leave path={path!r} away.")
        if backward and path == "compiled":
            raise AskedWrongly(
                'compiled code shows its forward pass alone; gradients are seen with path="eager".'
            )
        wanted = None if targets is None else [targets]
        dtype, types = "float64", dict[str, str]()
        if path != "reference":
            from pellucid.workbench import engines

            done = engines.run(self.module, [ids], wanted, path=path, backward=backward)
            tape, dtype, types = done.laid(), self.dtype, dict(done.types)
        elif update:
            tape = join(train(self.config, self.weights, [ids], [targets], update, steps, lr=lr, **settings))
        else:
            tape = forward(self.config, self.weights, [ids], wanted)
            if backward:
                tape.backward(tape.ref("loss"))
        tokens = [self.token(id) for id in ids]
        run: dict[str, Any] = {
            "model": self.name,
            "tokens": tokens,
            "ids": [ids],
            "targets": wanted,
            "dtype": dtype,
            "path": path,
        }
        if types:  # the fast engine keeps some values wider than others
            run["types"] = {name: type for name, type in types.items() if name in tape.values}
        vocabulary = [self.token(id) for id in range(self.config.vocab_size)]
        return Trace(tape, run, {"t": tokens, "s": tokens, "v": vocabulary})

    def explain(
        self, prompt: Prompt, at: str, *, depth: int = 3, top: int = 6, lines: int | None = 40, **run: Any
    ) -> Derivation:
        """Where a number came from: print it, or walk its operands. `run` is as for `trace`."""
        backward = run.get("target") is not None and not run.get("update")
        return derive(self.trace(prompt, **({"backward": backward} | run)), at, depth, top, lines)

    def in_layout(self, layout: str) -> "Model":
        """The same model with the channels of its queries and keys in RoPE's other order."""
        config, weights = in_layout(self.config, self.pretrained.weights, layout)
        return self.changed(config=config, weights=weights)

    def changed(self, **changes: Any) -> "Model":
        """The same with another `config`, other `weights`, another `tokenizer`: for trying a variant."""
        return Model(replace(self.pretrained, **changes), self.device, self.dtype)

    # ---- files

    def save(self, folder: str | Path) -> None:
        """Write our model folder: config, weights as they now are, tokenizer."""
        from pellucid.interop import model_folder

        model_folder.write(Path(folder), self._as_it_is())

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that `transformers` loads, where one of its families expresses this config."""
        from pellucid.interop import huggingface

        huggingface.write(Path(folder), self._as_it_is())

    def _as_it_is(self) -> Pretrained:
        """With the fast engine's weights and type where it has been made: it may have been trained."""
        if "module" not in self.__dict__:
            return self.pretrained
        weights = {
            name: (value.float() if value.element_size() == 2 else value).detach().cpu().numpy()
            for name, value in self.module.named_parameters()
        }
        types = dict.fromkeys(weights, number_type(self.dtype) or "F32")
        return replace(self.pretrained, weights=weights, source=replace(self.pretrained.source, types=types))

    def _ids(self, prompt: Prompt, target: Prompt | None) -> tuple[list[int], list[int] | None]:
        start = self.ids(prompt)
        goal: list[int] = []
        if target is not None:
            goal = self.tokenizer.encode(target) if isinstance(target, str) else _whole(target)
            if not goal:
                raise TokenError("the target is empty; give at least one token, or none at all.")
        ids = (start + goal)[: -1 if goal else None]
        if len(ids) > self.config.context_length:
            raise TokenError(
                f"{len(ids)} tokens do not fit this model's context of {self.config.context_length}; "
                "shorten the prompt."
            )
        return ids, [IGNORED] * (len(start) - 1) + goal if goal else None


def _rows(ids: Any) -> tuple[list[list[int]], bool]:
    """Lists of ids, and whether it was one list alone."""
    try:
        rows = list(map(_plain, _plain(ids)))
        single = not any(isinstance(row, Sequence) for row in rows)
        return list(map(_whole, [rows] if single else rows)), single
    except TypeError:  # a number, or numbers among lists
        raise TokenError(_NOT_IDS) from None


def _plain(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given


def _whole(ids: Iterable[Any]) -> list[int]:
    try:
        return [operator.index(id) for id in ids]
    except TypeError:
        raise TokenError(_NOT_IDS) from None


_NOT_IDS = "ids must be whole numbers, in a list or in several."
