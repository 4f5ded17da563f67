"""Every optimizer of training: equal to the specification's in float64, and saved and restored to the bit."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pellucid.base.errors import ConfigError, FileError
from pellucid.config import ModelConfig
from pellucid.parts import find, kinds
from pellucid.parts.optimizers import AdamW, MuonConfig, OptimizerConfig, Sgd
from pellucid.parts.schedules import Cosine
from pellucid.reference.tape import Tape
from pellucid.reference.training import train
from pellucid.training import optimizers
from pellucid.verification.mismatch import find_first_mismatch
from tests.reference.models import CONFIGS, IDS, TARGETS, weights

UPDATES, CLIP = 4, 0.3
SCHEDULE = Cosine(warmup=2, floor=0.1)
WARMING = {"beta2_start": 0.9, "beta2_warmup": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"beta": 0.8},
    "averaging_momentum": {"beta": 0.8},
    "adam": WARMING,
    "adam_l2": WARMING | {"weight_decay": 0.3},
    "adamw": WARMING | {"weight_decay": 0.3, "lr": 0.01},
    "muon": {"weight_decay": 0.3, "adam_weight_decay": 0.2, "adam_beta2_start": 0.9, "adam_beta2_warmup": 3},
}
every_kind = pytest.mark.parametrize("kind", kinds("optimizers"))


def made(kind: str) -> OptimizerConfig:
    part = find("optimizers", kind)(**SETTINGS[kind])
    assert isinstance(part, OptimizerConfig)
    return part


def parameters(config: ModelConfig, dtype: torch.dtype = torch.float64) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.tensor(value).to(dtype)) for name, value in weights(config).items()}


def step(
    named: dict[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    part: OptimizerConfig,
    at: int,
    tape: Tape,
) -> None:
    """One step of a run with the gradients of a tape; torch's own clipping divides by ‖g‖ + 1e-6."""
    for name, parameter in named.items():
        parameter.grad = torch.tensor(tape[f"d.{name}"]).to(parameter.dtype)
    grads = [parameter.grad for parameter in named.values() if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    for g in grads:
        g.mul_(CLIP / norm.clamp(min=CLIP))
    optimizers.scale_learning_rate(optimizer, SCHEDULE.factor(at, UPDATES))
    optimizers.set_betas(optimizer, part, at)
    optimizer.step()


def tapes_of(part: OptimizerConfig, config: ModelConfig) -> list[Tape]:
    return train(
        config,
        weights(config),
        IDS,
        TARGETS,
        part,  # type: ignore[arg-type]
        UPDATES,
        clip=CLIP,
        schedule=lambda at: SCHEDULE.factor(at, UPDATES),
    )


@pytest.mark.parametrize("name", ["gpt2", "guide"])
@every_kind
def test_each_update_equals_the_specifications(kind: str, name: str) -> None:
    """With clipping, decay of some, a schedule, and β₂ warming up; each update on its own gradients."""
    config, part = CONFIGS[name], made(kind)
    tapes, named = tapes_of(part, config), parameters(config)
    optimizer = optimizers.make_optimizer(named, part)
    assert float(tapes[0]["clip"]) < 1
    for at, tape in enumerate(tapes[:-1]):
        step(named, optimizer, part, at, tape)
        got = {name: parameter.detach().numpy() for name, parameter in named.items()}
        wanted = {name: tape[f"{name}@{at + 1}"] for name in named}
        assert find_first_mismatch(got, wanted, 1e-12) is None
        assert not any(np.array_equal(got[name], tape[name]) for name in got if got[name].ndim == 2)


def test_every_kind_of_the_parts_is_here_and_in_the_specification() -> None:
    from pellucid.base import registry
    from pellucid.reference.optimizers import RULES

    assert registry.kinds("pellucid.training.optimizers") == kinds("optimizers") == sorted(RULES)
    assert sorted(SETTINGS) == kinds("optimizers")


def test_adamw_is_fused_and_equals_torchs_plain_one() -> None:
    config, part = CONFIGS["gpt2"], AdamW(weight_decay=0.3)
    named, plain = parameters(config), parameters(config)
    fused = optimizers.make_optimizer(named, part)
    assert all(group["fused"] for group in fused.param_groups)
    other = torch.optim.AdamW(
        [
            {"params": group["params"], "weight_decay": group["weight_decay"]}
            for group in optimizers.make_optimizer(plain, part).param_groups
        ],
        lr=part.lr,
        betas=(0.9, 0.95),
        foreach=False,
        fused=False,
    )
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        for a, b in zip(named.values(), plain.values(), strict=True):
            a.grad = torch.randn(a.shape, dtype=a.dtype, generator=rng)
            b.grad = a.grad.clone()
        fused.step()
        other.step()
    got, wanted = ({n: p.detach().numpy() for n, p in some.items()} for some in (named, plain))
    assert find_first_mismatch(got, wanted, 1e-12) is None


# ---- Muon


def test_muon_equals_torchs_in_bfloat16() -> None:
    """Ours iterates matrices of one shape together; sums in bfloat16 may then differ in their last bit."""
    torch.manual_seed(0)
    shapes = [(6, 6), (6, 6), (12, 6), (6, 12)]
    start = [torch.randn(shape) for shape in shapes]
    named = {f"blocks.{i}.mlp.up_proj.weight": nn.Parameter(x.clone()) for i, x in enumerate(start)}
    theirs = [nn.Parameter(x.clone()) for x in start]
    ours = optimizers.make_muon(named, MuonConfig(), newton_schulz=torch.bfloat16)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.95)
    for _ in range(3):
        for a, b in zip(named.values(), theirs, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        ours.step()
        other.step()
    for a, b in zip(named.values(), theirs, strict=True):
        assert (a - b).abs().max() < 3 * 0.02 * 0.03


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_iteration_brings_all_singular_values_near_1(dtype: torch.dtype) -> None:
    x = torch.randn(2, 5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for given in (x, x.mT):
        made = optimizers.orthogonalize(given, 5, dtype)
        assert made.dtype is dtype and made.shape == given.shape
        sizes = torch.linalg.svdvals(made.double())
        assert sizes.min() > 0.6 and sizes.max() < 1.3


def test_muon_has_the_hidden_matrices_and_adamw_the_rest() -> None:
    config = CONFIGS["guide"]
    optimizer = optimizers.make_optimizer(parameters(config), MuonConfig())
    muons, *rest = optimizer.param_groups
    assert set(muons["param_names"]) == {n for n in config.parameters() if "_proj.weight" in n}
    names = {name: group["weight_decay"] for group in rest for name in group["param_names"]}
    assert set(names) | set(muons["param_names"]) == set(config.parameters())
    assert {name for name, decay in names.items() if decay} == {"unembed.weight"}


@pytest.mark.parametrize("only", ["unembed.weight", "blocks.0.mlp.up_proj.weight"])
def test_muon_for_one_sort_of_parameter_alone(only: str) -> None:
    named = {only: parameters(CONFIGS["guide"])[only]}
    optimizer, before = optimizers.make_optimizer(named, MuonConfig()), named[only].detach().clone()
    named[only].grad = torch.ones_like(before)
    optimizer.step()
    optimizer.zero_grad()
    assert named[only].grad is None
    assert not torch.equal(named[only], before)


def test_a_parameter_without_a_gradient_stays() -> None:
    for kind in kinds("optimizers"):
        named = parameters(CONFIGS["gpt2"])
        optimizer = optimizers.make_optimizer(named, made(kind))
        before = {name: value.detach().clone() for name, value in named.items()}
        moved = "blocks.0.attn.q_proj.weight"
        named[moved].grad = torch.ones_like(named[moved])
        optimizer.step()
        assert [name for name, value in named.items() if not torch.equal(value, before[name])] == [moved]


# ---- rates


@every_kind
def test_a_factor_multiplies_the_groups_own_rate_and_not_the_last_one(kind: str) -> None:
    part = made(kind)
    optimizer = optimizers.make_optimizer(parameters(CONFIGS["gpt2"]), part)
    own = [group["initial_lr"] for group in optimizer.param_groups]
    for factor in (0.5, 0.1, 1.0):
        optimizers.scale_learning_rate(optimizer, factor)
        assert [group["lr"] for group in optimizer.param_groups] == [rate * factor for rate in own]
    assert part.lr in own


def test_beta2_is_set_where_a_rule_has_one() -> None:
    part = made("muon")
    optimizer = optimizers.make_optimizer(parameters(CONFIGS["gpt2"]), part)
    optimizers.set_betas(optimizer, part, 1)
    muons, *rest = optimizer.param_groups
    assert "betas" not in muons
    assert [group["betas"] for group in rest] == [(0.9, pytest.approx(0.9 + 0.05 / 3))] * len(rest)


# ---- saved and restored


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@every_kind
def test_saved_and_restored_it_goes_on_to_the_same_bits(kind: str, dtype: torch.dtype) -> None:
    import json

    from safetensors.torch import load, save

    config, part = CONFIGS["gpt2"], made(kind)
    tapes, through = tapes_of(part, config), parameters(config, dtype)
    never_saved = optimizers.make_optimizer(through, part)
    for at in (0, 1):
        step(through, never_saved, part, at, tapes[at])

    tensors, plain = optimizers.get_state(never_saved)
    bytes_of = save({name: value.contiguous() for name, value in tensors.items()})
    again = {name: nn.Parameter(value.detach().clone()) for name, value in through.items()}
    restored = optimizers.make_optimizer(again, part)
    optimizers.load_state(restored, load(bytes_of), json.loads(json.dumps(plain)))
    assert [group["lr"] for group in restored.param_groups] == [g["lr"] for g in never_saved.param_groups]

    for at in (2, 3):
        step(through, never_saved, part, at, tapes[at])
        step(again, restored, part, at, tapes[at])
        assert all(torch.equal(again[name], through[name]) for name in through)
    ours, theirs = optimizers.get_state(restored)[0], optimizers.get_state(never_saved)[0]
    assert ours.keys() == theirs.keys()
    assert all(
        torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours
    )


def test_what_is_remembered_goes_by_the_parameters_names() -> None:
    named = parameters(CONFIGS["bare"])
    optimizer = optimizers.make_optimizer(named, AdamW())
    assert optimizers.get_state(optimizer)[0] == {}
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    tensors, plain = optimizers.get_state(optimizer)
    assert set(tensors) == {f"{name}.{key}" for name in named for key in ("step", "exp_avg", "exp_avg_sq")}
    assert {name for group in plain["groups"] for name in group["names"]} == set(named)


def test_restoring_copies_so_that_two_runs_never_share_a_moment() -> None:
    named = parameters(CONFIGS["bare"])
    optimizer = optimizers.make_optimizer(named, made("momentum"))
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    tensors, plain = optimizers.get_state(optimizer)
    before = {name: value.clone() for name, value in tensors.items()}
    twin = {name: nn.Parameter(value.detach().clone()) for name, value in named.items()}
    other = optimizers.make_optimizer(twin, made("momentum"))
    optimizers.load_state(other, tensors, plain)
    for parameter in twin.values():
        parameter.grad = torch.ones_like(parameter)
    other.step()
    assert all(torch.equal(tensors[name], before[name]) for name in before)


def test_a_changed_rate_holds_after_resuming() -> None:
    named = parameters(CONFIGS["bare"])
    tensors, plain = optimizers.get_state(optimizers.make_optimizer(named, Sgd(lr=0.1)))
    optimizer = optimizers.make_optimizer(named, Sgd(lr=0.5))
    optimizers.load_state(optimizer, tensors, plain)
    optimizers.scale_learning_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_what_was_saved_of_other_parameters_or_another_kind_is_refused() -> None:
    named = parameters(CONFIGS["bare"])
    fewer = {name: value for name, value in named.items() if name != "embed.weight"}
    adamw = optimizers.make_optimizer(named, AdamW())
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    adamw.step()
    tensors, plain = optimizers.get_state(adamw)
    with pytest.raises(FileError, match=r"embed\.weight"):
        optimizers.load_state(optimizers.make_optimizer(fewer, AdamW()), tensors, plain)
    with pytest.raises(FileError, match="grouped"):
        optimizers.load_state(optimizers.make_optimizer(named, Sgd()), tensors, plain)
    group = {"groups": [{"names": list(named), "lr": 0.1, "betas": [0.9, 0.99]}]}
    with pytest.raises(FileError, match="'betas'"):
        optimizers.load_state(optimizers.make_optimizer(named, Sgd()), {}, group)
    with pytest.raises(FileError, match=r"strange\.exp_avg"):
        optimizers.load_state(adamw, tensors | {"strange.exp_avg": torch.zeros(1)}, plain)
    wrong = tensors | {"embed.weight.exp_avg": torch.zeros(2, 2)}
    with pytest.raises(FileError, match=r"'embed\.weight\.exp_avg'.*\(2, 2\)"):
        optimizers.load_state(adamw, wrong, plain)
    assert all(torch.equal(value, tensors[name]) for name, value in optimizers.get_state(adamw)[0].items())


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no parameter to train"):
        optimizers.make_optimizer({}, Sgd())


def test_each_saved_tensor_is_read_once() -> None:
    """They may lie in a file, where reading all of them for each parameter takes minutes."""

    class Counted(dict[str, torch.Tensor]):
        reads = 0

        def __getitem__(self, name: str) -> torch.Tensor:
            self.reads += 1
            return super().__getitem__(name)

        def items(self) -> Any:
            raise AssertionError("that reads all of them")

    config, part = CONFIGS["gpt2"], made("adamw")
    named = parameters(config, torch.float64)
    first = optimizers.make_optimizer(named, part)
    step(named, first, part, 0, tapes_of(part, config)[0])
    tensors, plain = optimizers.get_state(first)
    counted = Counted(tensors)
    optimizers.load_state(optimizers.make_optimizer(named, part), counted, plain)
    assert counted.reads == len(tensors)
