"""Every check that a run makes before its first step, without writing a file."""

import os
from pathlib import Path

import torch

from pellucid.config import ModelConfig
from pellucid.data.sources.encoding import PROOF, check_texts, named_tokenizer, vocabulary_for
from pellucid.data.sources.source import kind_of, open_source
from pellucid.errors import ConfigError, FileError
from pellucid.text.corpus.sources import PACKED, files
from pellucid.training import compiling, memory, optimizers
from pellucid.training.device import resolve_device
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.evaluate import check_evaluation, check_patience
from pellucid.training.recipe import Recipe
from pellucid.training.saving.run_folder import DATA, RunFolder
from pellucid.training.start import config_of, init_model, resolve_recipe
from pellucid.training.state import rows_per_rank
from pellucid.training.weights import Weights


def check(recipe: Recipe, ranks: Ranks, is_new: bool = True) -> tuple[Recipe, ModelConfig]:
    """Returns the resolved recipe and the model's config, its vocabulary estimated where it is not known yet.

    Raises what the run would raise before its first step.
    """
    if is_new:
        check_out(recipe)
    device = resolve_device(recipe.train.device)
    rows_per_rank(recipe, ranks.world)
    recipe, start = resolve_recipe(recipe)
    cache = Path(recipe.out) / DATA
    if kind_of(recipe.data) == "text" and not (cache / PROOF).is_file():
        vocab_size = _check_text(recipe, has_tokenizer=start is not None)
    else:
        source = open_source(recipe.data, recipe.length, recipe.seed, cache, start=start)
        check_evaluation(source, recipe)
        vocab_size = source.tokenizer.vocab_size
    config = config_of(recipe, start) if start else recipe.config(vocab_size)
    memory.check_fits(recipe, config, str(device), ranks.world)
    model = init_model(recipe, start, vocab_size, torch.device("meta"), torch.float32)
    weights = Weights(model, recipe.train.only, recipe.train.freeze)
    optimizers.make(weights.trainable, recipe.optimizer)
    compiling.chosen(lambda ids, _: ids, recipe, device, recipe.train.parallel == "fsdp" and not ranks.alone)
    return recipe, config


def check_out(recipe: Recipe) -> None:
    """Refuses an `out` in which no run can begin."""
    out = Path(recipe.out)
    RunFolder(out).check_new()
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise FileError(f"cannot write {out}: {above} is not a writable folder.")


def text_bytes(recipe: Recipe) -> int:
    """Returns the bytes of the files that a run will read; every file of a text is checked on the way."""
    kind, paths = kind_of(recipe.data), recipe.data.paths
    if kind == "tokens":
        return sum(file.stat().st_size for file in Path(paths[0]).rglob("*") if file.is_file())
    read = check_texts(recipe.data).files if kind == "text" else paths
    return sum(os.path.getsize(file) for file in read if os.path.isfile(file))


def _check_text(recipe: Recipe, has_tokenizer: bool) -> int:
    """Checks a text that is not encoded yet, and returns the estimated vocabulary size."""
    size, data = text_bytes(recipe), recipe.data
    if not has_tokenizer:
        named_tokenizer(data)
    is_packed = any(path.endswith(PACKED) for path in files(data.paths))
    most = 2 * size  # tokens, where each byte is a document with an end token
    if not is_packed and most < recipe.length + 1:
        raise ConfigError(
            f"the text is too short: it has {size:,} bytes, and one row takes {recipe.length + 1} tokens. "
            "Use a smaller model.context_length, or more text."
        )
    share = data.validation
    check_patience(recipe, len(share) if isinstance(share, str) else share)
    fixed = {"bytes": 256, "characters": 256}
    return data.vocab_size or fixed.get(data.tokenizer) or vocabulary_for(size)
