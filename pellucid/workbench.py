"""`pellucid.load` and the model it returns."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig, preset_text, presets
from pellucid.errors import AskedWrongly, ConfigError, FileError, TokenError, did_you_mean
from pellucid.explain.derive import Derivation, derive
from pellucid.explain.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.ops.cross_entropy import IGNORED
from pellucid.reference.training import forward, join, train
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.words import Words


@dataclass(frozen=True)
class Model:
    """A config with weights and a tokenizer."""

    name: str
    config: ModelConfig
    weights: dict[str, Array]
    tokenizer: Tokenizer

    def trace(
        self,
        prompt: str,
        *,
        target: str | None = None,
        backward: bool = False,
        update: str | None = None,
        steps: int = 1,
        lr: float = 1.0,
        **settings: Any,
    ) -> Trace:
        """Run the specification on a prompt and keep every number.

        The ids of `target` follow the prompt; the loss is the mean over them. With `update` (sgd, adamw, …)
        the model is trained for `steps` updates with `settings` (only, clip, …), and VALUE@k is a value
        of the forward pass after k of them.
        """
        ids, targets = self._ids(prompt, target)
        if settings and not update:
            raise AskedWrongly(f'{min(settings)!r} belongs to an update: give update="sgd", for example.')
        if (backward or update) and targets is None:
            raise TokenError(
                "a gradient needs a loss, and a loss needs a target: give the text that should follow."
            )
        if update:
            tape = join(train(self.config, self.weights, [ids], [targets], update, steps, lr=lr, **settings))
        else:
            tape = forward(self.config, self.weights, [ids], None if targets is None else [targets])
            if backward:
                tape.backward(tape.ref("loss"))
        tokens = [self.tokenizer.token(id) for id in ids]
        run = {
            "model": self.name,
            "tokens": tokens,
            "ids": [ids],
            "targets": None if targets is None else [targets],
            "dtype": "float64",
            "path": "reference",
        }
        vocabulary = [self.tokenizer.token(id) for id in range(self.config.vocab_size)]
        return Trace(tape, run, {"t": tokens, "s": tokens, "v": vocabulary})

    def explain(
        self, prompt: str, at: str, *, depth: int = 3, top: int = 6, lines: int | None = 40, **run: Any
    ) -> Derivation:
        """Where a number came from: print it, or walk its operands. `run` is as for `trace`."""
        backward = run.get("target") is not None and not run.get("update")
        return derive(self.trace(prompt, **({"backward": backward} | run)), at, depth, top, lines)

    def _ids(self, prompt: str, target: str | None) -> tuple[list[int], list[int] | None]:
        start = self.tokenizer.encode(prompt)
        if not start:
            raise TokenError("the prompt is empty; give at least one token.")
        goal = self.tokenizer.encode(target or "")
        if target is not None and not goal:
            raise TokenError("the target is empty; give at least one token, or none at all.")
        ids = (start + goal)[: -1 if goal else None]
        if len(ids) > self.config.context_length:
            raise TokenError(
                f"{len(ids)} tokens do not fit this model's context of {self.config.context_length}; "
                "shorten the prompt."
            )
        return ids, [IGNORED] * (len(start) - 1) + goal if goal else None


def load(name: str | Path) -> Model:
    """A model by name ("abcd") or from a TOML file of one's own: config, words and weights."""
    data = _read(name)
    config = _config(name, data)
    if "weights" not in data:
        raise FileError(
            f"{name} is a shape without weights: `pellucid explain {name}` shows its parts and cost. "
            "To see numbers, use a model that has some, such as abcd."
        )
    words = data.get("words", [])
    if not isinstance(words, list) or not all(
        isinstance(word, str) and word.split() == [word] for word in words
    ):
        raise FileError(f"{name}: words must be a list of texts without blanks.")
    if len(words) != config.vocab_size or len(set(words)) != len(words):
        raise FileError(
            f"{name}: there must be {config.vocab_size} different words, as vocab_size says; "
            f"got {len(set(words))}."
        )
    return Model(Path(name).stem, config, _weights(name, config, data["weights"]), Words(tuple(words)))


def config_of(name: str | Path) -> ModelConfig:
    """The config of a model or a shape."""
    return _config(name, _read(name))


def weightless(name: str | Path) -> bool:
    """Whether the name is a shape without weights."""
    return "weights" not in _read(name)


def _read(name: str | Path) -> dict[str, Any]:
    """The tables of a model's TOML."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(
                f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}."
            ) from None
    elif str(name) in presets():
        text = preset_text(str(name))
    else:
        raise ConfigError(
            f"no model called {str(name)!r}; have {', '.join(presets())}, or give a .toml file."
            + did_you_mean(str(name), presets())
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{name}: this is not TOML: {error}.") from None


def _config(name: str | Path, data: dict[str, Any]) -> ModelConfig:
    if unknown := sorted(set(data) - {"config", "weights", "words"}):
        raise FileError(f"{name}: a model has config, words and weights, not {', '.join(unknown)}.")
    if not isinstance(data.get("config"), dict):
        raise FileError(f"{name}: a model needs a [config].")
    return ModelConfig.from_dict(data["config"])


def _weights(name: str | Path, config: ModelConfig, given: Any) -> dict[str, Array]:
    shapes = config.parameters()
    if not isinstance(given, dict):
        raise FileError(f"{name}: [weights] must be a table of names.")
    if strange := [key for key in given if key not in shapes]:
        raise FileError(f"{name}: no weight called {strange[0]!r}." + did_you_mean(strange[0], shapes))
    weights = {}
    for key, shape in shapes.items():
        if key not in given:
            raise FileError(f"{name}: the weight {key!r} is missing; its shape is {shape}.")
        try:
            array = np.array(given[key])
        except ValueError:
            array = np.array("ragged")
        if array.dtype.kind not in "if" or not np.isfinite(array).all():
            raise FileError(f"{name}: the weight {key!r} is not a table of numbers.")
        if array.shape != shape:
            raise FileError(f"{name}: the weight {key!r} has shape {array.shape}, not {shape}.")
        weights[key] = array.astype(np.float64)
    return weights
