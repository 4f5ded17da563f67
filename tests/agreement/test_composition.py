"""Any choices that go together make a model that trains, is saved and loaded, and says the same everywhere.

The choices are found by listing the folders, so a new one is here without being named. That both engines
agree on every value is in `test_engines.py`, over the same cover.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.reference.optimizers import update
from pellucid.verification.mismatch import (
    BETWEEN_ENGINES,
    CACHED_AGAINST_FULL,
    find_first_mismatch,
    find_mismatch,
)
from tests.agreement.engines import (
    COVER,
    FACTORS,
    IDS,
    PADDINGS,
    SEGMENTS,
    SIZES,
    TARGETS,
    Choice,
    array,
    config_of,
    fast,
    run,
    specified,
    text,
)
from tests.reference.models import weights

RATE = 0.01


def composes(config: ModelConfig, choice: Choice, folder: Path, seed: int = 0) -> None:
    """One model: trained a step in both engines, saved, loaded, and read with a cache."""
    values = weights(config, seed, config.d_model**-0.5)
    inputs = PADDINGS[choice["padding"]], SEGMENTS[choice["segments"]]
    tape = specified(config, values, IDS, TARGETS, *inputs)
    update(tape, "sgd", 1, lr=RATE)
    model = fast(config, seed)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    run(model, IDS, TARGETS, *inputs).backward()
    optimizer.step()
    moved = {name: array(value) for name, value in model.named_parameters()}
    wanted = {name: tape[f"{name}@1"] if f"{name}@1" in tape else values[name] for name in moved}
    assert find_first_mismatch(moved, wanted, BETWEEN_ENGINES) is None
    made = Pretrained("made", config, wanted, None, Provenance(folder, "made", "", {}, 0))
    model_folder.write(folder / "saved", made, dtype="float64")
    again = pellucid.load(folder / "saved", dtype="float64")
    assert again.config == config
    ids = torch.tensor(IDS)
    with torch.no_grad():
        whole = model(ids)
        assert find_mismatch("logits", array(again.module(ids)), array(whole), 1e-12) is None
        if config.mask.bidirectional_prefix < ids.shape[1]:
            cache, first = (
                Cache(config, len(IDS), 8, dtype=torch.float64),
                max(1, int(config.mask.bidirectional_prefix)),
            )
            parts = ids.split([first, *[1] * (ids.shape[1] - first)], 1)
            cached = torch.cat([model.forward_cached(part, cache) for part in parts], 1)
            assert find_mismatch("logits", array(cached), array(whole), CACHED_AGAINST_FULL) is None


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_every_pair_of_choices_trains_saves_loads_and_caches(choice: Choice, tmp_path: Path) -> None:
    config = config_of(choice)
    assert config
    composes(config, choice, tmp_path)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(600))
def test_any_choices_train_save_load_and_cache(seed: int, tmp_path: Path) -> None:
    random, config = np.random.default_rng([seed, 1]), None
    while config is None:
        choice = {key: values[random.integers(len(values))] for key, values in FACTORS.items()}
        config = config_of(choice)
    composes(config, choice, tmp_path, seed)


def test_two_choices_go_together_or_are_refused_with_what_would_work() -> None:
    """Every pair there is, not only a cover: a refusal names what was asked and says what to use."""
    refused = 0
    for (a, first), (b, second) in itertools.combinations(FACTORS.items(), 2):
        if a.startswith("bias") or b.startswith("bias") or {"padding", "segments"} & {a, b}:
            continue
        for x, y in itertools.product(first, second):
            why = refusal({**SIZES, a: x, b: y})
            refused += bool(why)
            assert not why or "Use " in why, why
            assert not why or any(str(word) in why for word in (x, y, a, b)), why
    assert 10 < refused < 100


def refusal(choice: Choice) -> str:
    try:
        ModelConfig.from_dict(choice)
    except ConfigError as error:
        return str(error)
    return ""
