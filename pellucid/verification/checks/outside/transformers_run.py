"""A run of `transformers`: its weights and what its modules compute, under our names.

Its modules are hooked by name, and `verification/name_tables.toml` says which of our values each returns. The
function that its attention calls is watched for what no module returns: queries and keys after RoPE, and the
mask.
"""

import contextlib
import importlib.util
import io
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pellucid.base.files import temporary_folder
from pellucid.config import ModelConfig
from pellucid.formats import huggingface
from pellucid.formats.huggingface import families
from pellucid.formats.rope_layout import in_layout
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.file_weights import list_changed, split_rows
from pellucid.verification.checks.files.second_readers import read_header, write_excerpt
from pellucid.verification.checks.outside.witnesses import EXPORT, SAME_FILE
from pellucid.verification.foreign_values import RecordedValue, widen_arrays
from pellucid.verification.name_table import NameTable, read_table

TABLES = {"gpt2": "hf-gpt2", "bloom": "hf-bloom"}
"""The name table of a family; of all others, "hf"."""
UNEMBEDDING = "unembed.weight"
DEQUANTIZED = "of the dequantized weights"


@dataclass(frozen=True)
class TransformersModel:
    """Their model, and ours as it is compared: the first blocks, and RoPE in their layout."""

    model: Any
    source: str
    """"from the same file", or "from our export" and why."""
    config: ModelConfig
    weights: Mapping[str, Array]

    @property
    def family(self) -> families.Family:
        return families.find(self.model.config.model_type)

    @property
    def window(self) -> int:
        """The most keys that a query of some layer sees, as they read the file; 0 where it sees all."""
        config = self.model.config.get_text_config()
        sizes = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
        return max((size for size in sizes if isinstance(size, int)), default=0)

    @property
    def table(self) -> NameTable:
        return read_table(TABLES.get(self.model.config.model_type, "hf"))


def load_transformers(subject: Subject, layers: int) -> TransformersModel:
    """Returns transformers' model with the first blocks of the subject's own file; of our export where it
    cannot open that."""
    opened = subject.model.pretrained
    path, kind = opened.provenance.path, opened.provenance.format
    config = replace(subject.config, n_layer=layers)
    config, weights = in_layout(config, subject.float_weights(config), "halves")
    reason = ""
    if list_changed(subject):
        reason = "its weights are no longer the file's"
    elif subject.requantized:
        reason = DEQUANTIZED
    elif kind not in ("huggingface", "gguf"):
        reason = ""
    elif kind == "huggingface":
        return TransformersModel(_load_folder(path, layers), SAME_FILE, config, weights)
    elif importlib.util.find_spec("gguf") is None:
        reason = "transformers reads GGUF with the gguf package: pip install gguf"
    else:
        try:
            return TransformersModel(_load_gguf(path, layers), SAME_FILE, config, weights)
        except Exception as error:  # another library on an untrusted file
            reason = f"transformers cannot read this GGUF file: {str(error)[:120]}"
    with temporary_folder() as folder:
        first = replace(subject.model.replace().pretrained, config=config, weights=weights)
        huggingface.write(folder / "model", first)
        model = _load_folder(folder / "model", layers)
    return TransformersModel(model, f"{EXPORT} ({reason})" if reason else EXPORT, config, weights)


def load_gguf(path: Path, subject: Subject) -> TransformersModel:
    """Returns transformers' model of a GGUF file of ours, whole."""
    config, weights = in_layout(subject.config, subject.float_weights(), "halves")
    return TransformersModel(_load_gguf(path, config.n_layer), EXPORT, config, weights)


def _load_folder(path: Path, layers: int) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path, local_files_only=True)
    if config.num_hidden_layers > layers:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    return _load(path, config=config)


def _load_gguf(path: Path, layers: int) -> Any:
    with temporary_folder() as folder:
        write_excerpt(read_header(path), folder / "excerpt.gguf", layers)
        return _load(folder, gguf_file="excerpt.gguf")


def _load(path: Path, **more: Any) -> Any:
    """Loads a model without what transformers prints meanwhile, which would mix with our output."""
    from transformers import AutoModelForCausalLM

    with contextlib.redirect_stderr(io.StringIO()), hide_warnings():
        return AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, local_files_only=True, attn_implementation="eager", **more
        ).eval()


@contextlib.contextmanager
def hide_warnings() -> Iterator[None]:
    """Hides what transformers warns of in a block."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---- its weights


def their_weights(theirs: TransformersModel) -> Iterator[tuple[str, Array | None]]:
    """Yields their weights under our names: None for one that they do not have, and also those that they have
    beside ours."""
    state, shapes = dict(theirs.model.named_parameters()), theirs.config.parameters()
    for link in theirs.family.links(theirs.config):
        tensor = state.pop(link.theirs, None)
        if tensor is None or tuple(tensor.shape) != link.shape(shapes):
            yield from ((name, None) for name in link.ours)
            continue
        parts = split_rows(tensor.detach(), link, shapes)
        yield from ((name, part.contiguous().numpy()) for name, part in parts.items())
    for name, tensor in state.items():  # such as a bias, which may be there and zero
        if tensor.any():
            yield _find_our_name(theirs.family, name), tensor.detach().numpy()
    head = theirs.model.get_output_embeddings()
    if UNEMBEDDING not in shapes and head is not None:  # tied, here: it must be tied there as well
        yield UNEMBEDDING, head.weight.detach().numpy()


def _find_our_name(family: families.Family, name: str) -> str:
    """Returns our name of a tensor of theirs; of several that it holds, the first."""
    path, _, end = name.rpartition(".")
    numbers = [part for part in path.split(".") if part.isdigit()] or ["0"]
    for theirs, ours, *_ in family.tensors:
        if theirs.format(*numbers) == path:
            return f"{ours.format(*numbers)}.{end}"
    return name


# ---- its values


def record_run(theirs: TransformersModel, ids: list[int]) -> dict[str, RecordedValue]:
    """Returns what its modules return and read by the names of its modules, and what its attention reads by
    ours, in one forward pass."""
    seen: dict[str, Any] = {}
    known, heads = _known_names(theirs.table), theirs.model.config.num_attention_heads
    hooks = [
        module.register_forward_hook(_record_module(name, known, heads, seen))
        for name, module in theirs.model.named_modules()
        if known(name) or known(f"{name}.1") or known(f"{name}.in")
    ]
    try:
        with torch.no_grad(), _watch_attention(theirs.model, seen):
            theirs.model(torch.tensor([ids]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return widen_arrays({name: value.float() for name, value in seen.items()})


def _known_names(table: NameTable) -> Callable[[str], bool]:
    return lambda name: any(rule.resolve(name) is not None for rule in table.rules)


def _record_module(
    name: str, known: Callable[[str], bool], heads: int, seen: dict[str, Any]
) -> Callable[..., None]:
    def hook(module: Any, read: tuple[Any, ...], output: Any) -> None:
        first, second = output[:2] if isinstance(output, tuple) else (output, None)
        found = {name: first, f"{name}.1": second, f"{name}.in": read[0] if read else None}
        if name.endswith(".query_key_value"):
            parts = first.unflatten(-1, (heads, 3, -1))
            found |= {f"{name}.{part}": parts[..., i, :] for i, part in enumerate("qkv")}
        seen.update({key: value.detach() for key, value in found.items() if value is not None and known(key)})

    return hook


@contextlib.contextmanager
def _watch_attention(model: Any, seen: dict[str, Any]) -> Iterator[None]:
    """Records queries and keys after RoPE and the mask, where its attention is a function of these."""
    home = sys.modules[type(model).__module__]
    attend = getattr(home, "eager_attention_forward", None)
    if attend is None:
        yield
        return
    scale = attention_scale(model)

    def record_and_attend(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *more: Any, **options: Any
    ) -> Any:
        scope = f"blocks.{module.layer_idx}.attn"
        seen.update({f"{scope}.q_rot": query.detach() / scale, f"{scope}.k_rot": key.detach() / scale})
        if (scaling := options.get("scaling")) is not None:  # the first line of each of its functions
            keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            seen[f"{scope}.scores"] = torch.matmul(query, keys.transpose(2, 3)) * scaling
        if mask is not None:
            seen["mask"] = (mask == 0).float()
        return attend(module, query, key, value, mask, *more, **options)

    with mock.patch.object(home, "eager_attention_forward", record_and_attend):
        yield


def attention_scale(model: Any) -> float:
    """Returns the factor of YaRN by which their cos and sin, and so each query and key, are multiplied; here
    the scores are multiplied by its square."""
    return float(getattr(_rotary(model), "attention_scaling", 1.0))


def rotary_tables(model: Any, places: Array) -> tuple[Array, Array] | None:
    """Returns the cos and sin [T D/2] of their angles at these positions, None where they have no RoPE."""
    if (rotary := _rotary(model)) is None:
        return None
    with torch.no_grad():
        tables = rotary(torch.zeros(1), position_ids=torch.tensor(places[None]))
    cos, sin = (table[0, :, : table.shape[-1] // 2].double().numpy() for table in tables)
    return cos / attention_scale(model), sin / attention_scale(model)


def _rotary(model: Any) -> Any:
    return getattr(getattr(model, "model", None), "rotary_emb", None)
