"""The promise in every other precision and path: what the fast engine records follows from its own inputs.

In float64 the engines are compared (`test_engines.py`). Elsewhere each value is recomputed from what the run
itself recorded before it; a healthy run is noise, and a planted bug is named where it stands.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine import positions
from pellucid.explanation.engines import run
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.run_report import RunReport
from tests.agreement import other_activation
from tests.agreement.engines import CHOICES, COVER, DIFFERENT, IDS, TARGETS, Choice, config_of, fast, text

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
every_type = pytest.mark.parametrize("type", TYPES)
every_path = pytest.mark.parametrize("path", ["eager", "fused"])
HEALTHY = 0.25
"""The size of weights: larger and without norms, squares leave the range of half precision."""
ROPE = CHOICES["positions/rope"]
LONG = {
    family: dataclasses.replace(CHOICES[family], context_length=300, n_layer=1, vocab_size=50)
    for family in ("positions/rope", "positions/learned", "positions/sinusoidal", "mask/none")
}


def replayed(
    config: ModelConfig, type: str, path: str, ids: Any = IDS, targets: Any = TARGETS, **more: Any
) -> RunReport:
    model = fast(config, dtype=getattr(torch, type), **more)
    done = run(model, ids, targets, path=path)
    recorded = {name: RecordedValue(value, done.types[name]) for name, value in done.values.items()}
    assert set(done.types.values()) <= {type, "float32", "float64", "bool"}
    made = {name: x for name, x in recorded.items() if done.tape.roles.get(name) != "leaf"}
    return judge_run(done.tape, made)


def long_ids(config: ModelConfig) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    ids, targets = random.integers(0, config.vocab_size, (2, 1, config.context_length)).tolist()
    return ids, targets


# ---- healthy runs


@pytest.mark.rotating
@every_path
@every_type
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_a_healthy_run_is_never_a_bug(choice: Choice, type: str, path: str) -> None:
    config = config_of(choice)
    assert config
    done = replayed(config, type, path, scale=HEALTHY)
    assert done.verdict != "BUG", str(done)
    assert len(done.values) >= 15


@pytest.mark.torture
@every_path
@every_type
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_no_healthy_run_is_ever_a_bug(choice: Choice, seed: int, type: str, path: str) -> None:
    config = config_of(choice)
    assert config
    done = replayed(config, type, path, seed=seed, scale=HEALTHY)
    assert done.verdict != "BUG", str(done)


@pytest.mark.rotating
@every_path
@every_type
@pytest.mark.parametrize("name", LONG)
def test_a_healthy_run_over_many_positions_is_never_a_bug(name: str, type: str, path: str) -> None:
    """Beyond 256, where a position no longer fits into bfloat16."""
    config = LONG[name]
    done = replayed(config, type, path, *long_ids(config))
    assert done.verdict != "BUG", str(done)


@pytest.mark.parametrize("name", DIFFERENT)
def test_in_float64_both_paths_are_equal_and_not_only_noise(name: str) -> None:
    for path in ("eager", "fused"):
        assert replayed(CHOICES[name], "float64", path).verdict == "equal"


# ---- a bug that only one precision has


def in_the_model_s_type(self: positions.Positions, places: Tensor, dtype: torch.dtype) -> Any:
    """Positions and frequencies cast before they are multiplied: exact in float64."""
    assert self.angles is not None
    angles = (places.to(dtype)[:, None] * self.angles[1].to(dtype)).double()
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    return positions.Rotation.from_cos_sin(angles.cos().to(exact), angles.sin().to(exact), self.layout)


@every_path
def test_positions_rounded_to_bfloat16_are_a_bug_in_bfloat16_alone(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions.Positions, "rotation", in_the_model_s_type)
    config = LONG["positions/rope"]
    given = long_ids(config)
    assert replayed(config, "float64", path, *given).verdict == "equal"
    both = run(fast(config), *given)
    wanted = {name: both.tape[name] for name in both.values}
    assert find_first_mismatch(both.values, wanted, BETWEEN_ENGINES) is None
    done = replayed(config, "bfloat16", path, *given)
    assert str(done).startswith("BUG at blocks.0.attn.q_rot\n"), str(done)
    assert {bug.name for bug in done.bugs} == {"blocks.0.attn.q_rot", "blocks.0.attn.k_rot"}
    assert done.bugs[0].units > 100


def test_a_bug_is_reported_with_its_place_both_numbers_and_the_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions.Positions, "rotation", in_the_model_s_type)
    config = LONG["positions/rope"]
    done = replayed(config, "bfloat16", "eager", *long_ids(config))
    first, second, third, *_ = str(done).splitlines()
    bug = done.bugs[0]
    (_, h, t, d) = bug.index
    assert first == "BUG at blocks.0.attn.q_rot"
    assert second.strip().startswith(f"blocks.0.attn.q_rot[h={h},t={t},d={d}]: ")
    assert f"{bug.got:.3g}"[:4] in second and f"{bug.wanted:.3g}"[:4] in second
    assert "where its inputs give" in second and "units of rounding" in second
    assert third.strip().startswith("Q'[") and "cos" in third and "sin" in third


# ---- a bug that only the compiled code has


TINY = dataclasses.replace(ROPE, n_layer=1)


@pytest.fixture
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh")
def test_a_bug_of_compiled_code_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever compiles gets another sign. The compiler's front end is enough for that."""
    other_activation.plant(
        monkeypatch, lambda right, x: -right(x) if torch.compiler.is_compiling() else right(x)
    )
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    for path in ("eager", "fused"):
        assert replayed(TINY, "float32", path).verdict == "noise"
    done = replayed(TINY, "float32", "compiled")
    assert str(done).startswith("BUG at blocks.0.mlp.act\n")
    assert [bug.name for bug in done.bugs] == ["blocks.0.mlp.act"]
    assert {"blocks.0.attn.q", "blocks.0.mlp.act", "logits", "loss"} <= {value.name for value in done.values}
