"""A model: config, weights, tokenizer, and the fast engine that runs it; `load` opens one by its name."""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pellucid.base.arguments import (
    check_bool,
    check_int,
    check_int_list,
    check_iterator,
    check_one_of,
    check_path,
    check_text,
    check_type,
)
from pellucid.base.dtypes import Array, dtype_code, dtype_name
from pellucid.base.errors import ConfigError, FileError, TokenError, UsageError, unknown
from pellucid.base.formatting import escape_controls
from pellucid.base.lazy import attach
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.engine.device_memory import check_engine, check_memory, resolve_device
from pellucid.formats.pretrained import (
    LazyTensor,
    LazyWeights,
    Pretrained,
    Provenance,
    as_lazy,
    parameter_count,
    shape_mismatch,
)
from pellucid.formats.quantizing import check_weights, with_weights
from pellucid.formats.resolve import open_model
from pellucid.formats.rope_layout import in_layout
from pellucid.text.prompts import (
    NOT_IDS,
    Prompt,
    check_ids,
    check_length,
    check_prompt,
    check_vocabulary,
    split_prompts,
)
from pellucid.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from torch import Tensor
    from torch import device as Device
    from torch import dtype as Dtype
    from torch.nn import Module

    from pellucid.engine.quantized_tensor import QuantizedTensor
    from pellucid.engine.transformer import Transformer
    from pellucid.evaluation.calibration.calibrate import calibrate
    from pellucid.evaluation.continuations import loglikelihood
    from pellucid.evaluation.evaluate import evaluate
    from pellucid.evaluation.quantization.quantize import quantize
    from pellucid.evaluation.score import loss, score
    from pellucid.explanation.tracing import trace
    from pellucid.generation.chat import chat, chat_prompt
    from pellucid.generation.generate import astream, generate, generate_ids, stream
    from pellucid.interpretability.look import look
    from pellucid.server.explorer.export import explore
    from pellucid.verbs import explain
    from pellucid.verification.checks.catalogue import verify
    from pellucid.verification.compare import compare

VERBS = {
    "pellucid.evaluation.calibration.calibrate": ("calibrate",),
    "pellucid.evaluation.continuations": ("loglikelihood",),
    "pellucid.evaluation.evaluate": ("evaluate",),
    "pellucid.evaluation.quantization.quantize": ("quantize",),
    "pellucid.evaluation.score": ("loss", "score"),
    "pellucid.explanation.tracing": ("trace",),
    "pellucid.generation.chat": ("chat", "chat_prompt"),
    "pellucid.generation.generate": ("astream", "generate", "generate_ids", "stream"),
    "pellucid.interpretability.look": ("look",),
    "pellucid.server.explorer.export": ("explore",),
    "pellucid.verbs": ("explain",),
    "pellucid.verification.checks.catalogue": ("verify",),
    "pellucid.verification.compare": ("compare",),
}
"""The functions of a model that are its methods too: `model.evaluate(data)` is `evaluate(model, data)`. They
are defined in rooms that come later in the import order; each is imported on first use."""


ELSEWHERE = {
    "batch_decode": "decode",
    "eos_token_id": "eos_ids",
    "forward": "logits",
    "push_to_hub": "save_pretrained",
    "run_with_cache": "trace",
    "run_with_hooks": "trace, and pellucid.edit",
    "state_dict": "weights",
    "stop": "eos_ids",
    "to_string": "decode",
    "to_tokens": "encode",
    "tokenize": "encode",
}
"""Names in other libraries, and what `Model` calls the same thing."""


class Model:
    """A language model: config, weights, tokenizer and the fast engine. `pellucid.load` returns one.

    >>> import pellucid
    >>> model = pellucid.load("abcd")
    >>> model
    <Model abcd: 28 parameters, float32 on cpu>
    >>> model.generate("A B", max_new_tokens=2)
    ' B B'
    """

    def __init__(
        self,
        pretrained: Pretrained,
        device: str = "cpu",
        dtype: "str | Dtype" = "float32",
        weights: str | None = None,
    ) -> None:
        hint = "`pellucid.load` opens a model by its name."
        check_type("pretrained", pretrained, Pretrained, "a model as files hold it", hint)
        self.pretrained, self._asked = with_weights(pretrained, weights), check_engine(device, dtype)
        self._module: Transformer | None = None

    @classmethod
    def from_pretrained(
        cls,
        name: "str | os.PathLike[str] | Module",
        *,
        device: str = "cpu",
        dtype: "str | Dtype" = "float32",
        weights: str | None = None,
    ) -> "Model":
        """Returns what `pellucid.load` returns, under the name that other libraries use."""
        if not isinstance(name, str | os.PathLike):
            from pellucid.formats.huggingface.reading import is_module, read_module

            if is_module(name):
                return cls(read_module(name), *check_engine(device, dtype), check_weights(weights))
        if not isinstance(name, str) or name:  # `open_model` says what an empty name could be
            name = check_path("name", name)
        check_engine(device, dtype)
        check_weights(weights)
        return cls(open_model(name), device, dtype, weights)

    @classmethod
    def from_config(
        cls,
        config: ModelConfig | str | Path,
        *,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
        initialization: str = "gpt2",
        device: str = "cpu",
        dtype: "str | Dtype" = "float32",
    ) -> "Model":
        """Returns a new model with weights drawn from the seed; a preset's name stands for its config."""
        seed, asked = check_int("seed", seed), check_engine(device, dtype)
        check_text("initialization", initialization)
        if not isinstance(config, ModelConfig):
            from pellucid.formats.resolve import read_config

            config = read_config(check_path("config", config))
        _check_tokenizer(tokenizer, config)
        from pellucid.engine.initializations import initialize
        from pellucid.engine.transformer import Transformer

        count = parameter_count(config.parameters())
        check_memory(4 * count, f"{count:,} parameters in float32", "make the config smaller", "cpu")
        drawn = initialize(Transformer.empty(config), initialization, seed)
        weights = {name: value.detach().numpy() for name, value in drawn.named_parameters()}
        nowhere = Provenance(Path(os.devnull) / "new", "memory", "pellucid", dict.fromkeys(weights, "F32"), 0)
        return cls(Pretrained("new", config, weights, tokenizer, nowhere), *asked)

    def __getattr__(self, name: str) -> Any:
        """Raises, with the name that is meant where other libraries call it so."""
        meant = f"; `{ELSEWHERE[name]}` is what it is called here" if name in ELSEWHERE else ""
        raise AttributeError(f"a Model has no {name!r}{meant}")

    def __repr__(self) -> str:
        count = parameter_count(self.config.parameters())
        text = (
            f"<Model {self.name}: {count:,} parameters, {self._weight_type()}{self.dtype} on {self.device}>"
        )
        return escape_controls(text, keep="")

    def _weight_type(self) -> str:
        """Returns "int4 weights, ", the type that most of the quantized numbers have; "" without one."""
        counts = Counter[str]()
        for tensor in as_lazy(self.pretrained.weights).tensors.values():
            counts[tensor.type] += math.prod(tensor.shape) if tensor.type else 0
        return "".join(f"{type} weights, " for type, count in counts.most_common(1) if count)

    @property
    def name(self) -> str:
        """Its name: what was typed to open it, or its name in the library."""
        return self.pretrained.name

    @property
    def short_name(self) -> str:
        """The name in files and tables that others may see: of a path the last part alone."""
        return self.pretrained.short_name

    @property
    def config(self) -> ModelConfig:
        """Its sizes and choices."""
        return self.pretrained.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer; a TokenError where it came without one."""
        return self.pretrained.need_tokenizer()

    @property
    def device(self) -> str:
        """The device of the fast engine."""
        return self._asked[0] if self._module is None else str(self._module.device)

    @property
    def dtype(self) -> str:
        """The dtype of the fast engine."""
        return self._asked[1] if self._module is None else dtype_name(self._module.dtype)

    @property
    def weights(self) -> Mapping[str, Array]:
        """Every parameter as an array, by name, as it now is: of the file, or of the module where it was
        trained. Each is read when it is asked for. `np.asarray` gives the numbers of a quantized one."""
        if self._module is None:
            return self.pretrained.weights
        tensors = as_lazy(self.pretrained.weights).tensors
        return LazyWeights(
            {name: LazyTensor(t.shape, partial(self._weight, name), t.type) for name, t in tensors.items()}
        )

    @property
    def module(self) -> "Transformer":
        """The fast engine: a `torch.nn.Module` on the device and in the dtype asked for.

        Train it, edit its parameters, `module.compile()` it: this model is then what it has become.
        """
        import torch

        from pellucid.engine.transformer import Transformer

        if self._module is None:
            dtype = getattr(torch, self.dtype)
            self._module = Transformer.from_weights(
                self.config, self.pretrained.weights, self.resolve_device(), dtype
            ).eval()
        return self._module

    def modified_weight(self, name: str) -> "Tensor | None":
        """Returns the module's parameter if it is no longer the file's weight, else None; of a quantized one
        its numbers in float64."""
        if check_text("name", name) not in self.pretrained.weights:
            raise UsageError(unknown("name", name, self.pretrained.weights))
        if self._module is None:
            return None
        import torch

        from pellucid.engine.precision import to_roundable

        held, array = self._held_weight(name), self.pretrained.weights[name]
        if held.shape != array.shape:
            raise UsageError(f"the module's {name} is {tuple(held.shape)}, no longer {array.shape}.")
        if not isinstance(held, torch.Tensor):
            same = isinstance(array, QuantizedWeight) and held.to_weight().equals(array)
            return None if same else held.dequantize(torch.float64)
        if dtype_name(held.dtype) != self._asked[1]:
            return held
        given = to_roundable(array, held.dtype).to(held.dtype)
        bits = (one.contiguous().view(torch.uint8) for one in (given, held.cpu()))
        return None if torch.equal(*bits) else held

    def _weight(self, name: str) -> Array:
        import torch

        modified = self.modified_weight(name)
        if modified is None:
            return self.pretrained.weights[name]
        held = self._held_weight(name)
        if isinstance(held, torch.Tensor):
            return modified.clone().double().cpu().numpy()
        return cast(Array, held.to_weight())

    def _held_weight(self, name: str) -> "Tensor | QuantizedTensor":
        """Returns what the module holds in place of a parameter, without its graph."""
        from pellucid.engine.quantized_tensor import QuantizedTensor

        owner, _, last = name.rpartition(".")
        try:
            held = getattr(self.module.get_submodule(owner), last)
        except AttributeError:
            raise UsageError(f"the module no longer has the parameter {name}.") from None
        return held if isinstance(held, QuantizedTensor) else held.detach()

    def resolve_device(self) -> "Device":
        """Returns the device as a `torch.device`, if it can be used here."""
        return resolve_device(self.device)

    # ---- text to ids

    def encode(self, prompt: Prompt, parse_special: bool = False) -> list[int]:
        """Returns the token ids of a prompt, with the bos token in front where the model wants one.

        Special tokens in a text, such as <|im_start|>, are ordinary text unless they are to be parsed.
        """
        check_bool("parse_special", parse_special)
        if isinstance(prompt, str):
            ids = self.pretrained.encode(prompt, parse_special)
        else:
            ids = check_ids(prompt, "prompt")
        if not ids:
            raise TokenError("the prompt is empty; give at least one token.")
        check_vocabulary(ids, self.config.vocab_size, "prompt")
        return ids

    def decode_stream(
        self, prompt: Prompt, tokens: Iterable[int], eos_ids: Collection[int] | None = None
    ) -> Iterator[str]:
        """Yields the text of tokens that follow a prompt, without those that end it; a piece for each token.

        A model may have more embedding rows than its tokenizer has tokens; the rest have no text."""
        decoder, readable = self.tokenizer.decode_stream(), self.tokenizer.vocab_size
        ending = self.eos_ids if eos_ids is None else check_int_list("eos_ids", eos_ids)
        for id in self.encode(prompt):  # a first word may need a blank before it
            decoder.feed(id)
        following = check_iterator("tokens", tokens, "token ids, in a list or as they come")

        def decode() -> Iterator[str]:
            for id in following:
                has_text = check_int("tokens", id, least=0) < readable and id not in ending
                yield decoder.feed(id) if has_text else ""
            yield decoder.end()

        return decode()

    def decode(self, ids: "Sequence[int] | Array | Tensor") -> str:
        """Returns the text of token ids, in a list or an array.

        >>> import pellucid
        >>> pellucid.load("abcd").decode([0, 1])
        'A B'
        """
        return self.tokenizer.decode(check_ids(ids, "ids"))

    def token(self, id: int) -> str:
        """Returns one token as text; its number where there is no tokenizer."""
        reader, id = self.pretrained.tokenizer, check_int("id", id, least=0)
        return reader.token(id) if reader and id < reader.vocab_size else str(id)

    def label(self, id: int) -> str:
        """Returns one token with a mark for each space, as tables show it; its number where it has no
        text."""
        reader, id = self.pretrained.tokenizer, check_int("id", id)
        return reader.visible(id) if reader and 0 <= id < reader.vocab_size else str(id)

    @cached_property
    def token_labels(self) -> list[str]:
        """The label of every token."""
        return [self.label(id) for id in range(self.config.vocab_size)]

    @property
    def eos_ids(self) -> list[int]:
        """The ids of the tokens that end a text."""
        return self.pretrained.eos_ids

    # ---- the fast engine

    def logits(self, prompt: "Prompt | Sequence[Prompt] | Array | Tensor") -> "Tensor":
        """Returns the logits [T V] of a text or a list of ids, or [B T V] of several: NaN after the end of
        the shorter ones.

        >>> import pellucid
        >>> pellucid.load("abcd").logits([[1, 2], [3]])[1]
        tensor([[ 1., -1., -1.,  1.],
                [nan, nan, nan, nan]])
        """
        import torch

        check_length(prompt, self.config.context_length)
        rows, single = split_prompts(check_prompt(prompt))
        batch = [self.encode(row) if isinstance(row, str) else check_ids(row) for row in rows]
        if not all(batch):
            raise TokenError(NOT_IDS)
        longest, device = max(map(len, batch)), self.module.device
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in batch], device=device)
        self.module.check_ids(padded)
        real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch], device=device)
        padding = None if bool(real.all()) else real.bool()
        with torch.no_grad():
            logits: Tensor = self.module(padded, padding=padding)
        if padding is not None:
            logits = logits.masked_fill(~padding[..., None], torch.nan)
        return logits[0] if single else logits

    # ---- the same model with something else

    def in_layout(self, layout: str) -> "Model":
        """Returns the same model with its queries and keys in RoPE's layout "halves" or "pairs"."""
        layout = check_one_of("layout", layout, ("halves", "pairs"))
        config, weights = in_layout(self.config, self.weights, layout)
        return self.replace(config=config, weights=weights)

    def replace(self, **changes: Any) -> "Model":
        """Returns the same model with another `config`, other `weights` or another `tokenizer`."""
        known = [entry.name for entry in dataclasses.fields(Pretrained)]
        if wrong := [name for name in changes if name not in known]:
            raise UsageError(unknown("an argument of replace", wrong[0], known))
        if "name" in changes:  # its files are then called so, too
            changes = {"own_name": "", **changes}
        made = dataclasses.replace(self._as_it_is(), **changes)
        check_type("config", made.config, ModelConfig, "a ModelConfig")
        if {"config", "weights"} & changes.keys():
            _check_arrays(made.weights, made.config)
        if "tokenizer" in changes:
            _check_tokenizer(made.tokenizer, made.config)
        return Model(made, self.device, self.dtype)

    if TYPE_CHECKING:
        calibrate, evaluate, loglikelihood, score = calibrate, evaluate, loglikelihood, score
        astream, generate, generate_ids, stream = astream, generate, generate_ids, stream
        chat, chat_prompt = chat, chat_prompt
        compare, explain, explore, look, trace, verify = compare, explain, explore, look, trace, verify
        loss, quantize = loss, quantize

    # ---- files

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Writes our model folder: config, weights as they now are, tokenizer; `force` replaces a model."""
        from pellucid.formats import model_folder

        model_folder.write(self._output(folder, force), self._as_it_is(), force=force)

    def save_pretrained(
        self,
        folder: str | Path,
        force: bool = False,
        *,
        safe_serialization: bool = True,
        max_shard_size: int | str | None = None,
    ) -> None:
        """Writes a folder that `transformers` loads, where one of its families expresses this config.

        The last two are accepted from habit: the weights are always safetensors, in shards of our size.
        """
        from pellucid.formats import huggingface

        if not check_bool("safe_serialization", safe_serialization):
            raise UsageError("weights are written as safetensors alone: omit safe_serialization.")
        huggingface.write(self._output(folder, force), self._as_it_is(), force=force)

    def _output(self, folder: str | Path, force: bool) -> Path:
        """Returns where to save, which is not where this model is read from."""
        folder, force = Path(check_path("folder", folder)), check_bool("force", force)
        source = self.pretrained.provenance.path
        if force and source.exists() and folder.resolve() in (source.resolve(), *source.resolve().parents):
            raise FileError(f"{folder}: this model's weights are read from there. Give another folder.")
        return folder

    def _as_it_is(self) -> Pretrained:
        """Returns the model with its weights as they now are, each in its current type."""
        held = {name: self.modified_weight(name) for name in self.config.parameters()}
        types = {  # of a quantized weight none is used
            name: dtype_code(dtype_name(value.dtype)) or "F32"
            for name, value in held.items()
            if value is not None
        }
        provenance = dataclasses.replace(
            self.pretrained.provenance, types={**self.pretrained.provenance.types, **types}
        )
        return dataclasses.replace(self.pretrained, weights=self.weights, provenance=provenance)


attach(Model, VERBS)
AnyModel = Model | str | os.PathLike[str]
"""A model, or the name or path of one, which is then opened."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A path, or several."""


def load(
    name: "str | os.PathLike[str] | Module",
    *,
    device: str = "cpu",
    dtype: "str | Dtype" = "float32",
    weights: str | None = None,
) -> Model:
    """Returns a model with its weights.

    `name` is a folder (Pellucid's or Hugging Face's), a run or its folder, a `.gguf` or `.toml` file, the
    name of a fetched model ("smollm2") or of the teaching model ("abcd"); or a module of `transformers` of a
    family that folders may have. `device` and `dtype` are those of
    the fast engine; the specification always computes in float64. `weights` quantizes the matrices, "int8"
    or "int4", or holds them as the file has them, "file": a GGUF's own blocks. Without it they are floats, or
    what a folder of quantized weights holds.

    >>> import pellucid
    >>> pellucid.load("abcd", dtype="float64")
    <Model abcd: 28 parameters, float64 on cpu>
    """
    return Model.from_pretrained(name, device=device, dtype=dtype, weights=weights)


def save(model: Model | str | os.PathLike[str], /, folder: str | Path, force: bool = False) -> None:
    """Writes a model as our model folder; `force` replaces one that is there.

    >>> import pathlib, tempfile, pellucid
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "mine"
    >>> pellucid.save("abcd", folder)
    >>> pellucid.load(folder).generate("A B", max_new_tokens=2)
    ' B B'
    """
    to_model(model).save(folder, force)


def to_model(model: Model | str | os.PathLike[str]) -> Model:
    """Returns the model, opened where only its name is given: the first line of each verb that takes one."""
    return model if isinstance(model, Model) else load(model)


def _check_arrays(weights: Any, config: ModelConfig) -> None:
    """Raises unless weights are the config's parameters, as arrays by name."""
    if not isinstance(weights, LazyWeights):
        for name, array in check_type("weights", weights, Mapping, "arrays by name").items():
            check_text("a name in weights", name)
            check_type(f"weights[{name!r}]", array, (np.ndarray, QuantizedWeight), "an array")
    shapes = {name: tensor.shape for name, tensor in as_lazy(weights).tensors.items()}
    if why := shape_mismatch(config.parameters(), shapes):
        raise UsageError(f"weights must be those of the config: {why}.")


def _check_tokenizer(tokenizer: Any, config: ModelConfig) -> None:
    """Raises unless it is a tokenizer, or None, whose tokens a model of this config has."""
    if tokenizer is None:
        return
    hint = "`model.tokenizer` is one."
    if check_type("tokenizer", tokenizer, Tokenizer, "a Tokenizer", hint).vocab_size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens, and vocab_size={config.vocab_size:,} is "
            f"less. Use vocab_size={tokenizer.vocab_size}."
        )
