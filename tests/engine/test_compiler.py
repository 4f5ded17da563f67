"""The compiler sees one whole graph: no taps, no breaks, and nothing to compile again while decoding.

Compiled code is kept apart by what it was compiled for.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.engine.cache import Cache
from pellucid.engine.compiler import OWN, VARIABLE, clear_cache, find_folder, name_folder
from pellucid.engine.loss import loss
from pellucid.engine.positions import FIRST_POSITIONS
from pellucid.engine.taps import TapScope, edit, record
from pellucid.engine.transformer import Transformer
from tests.agreement.engines import CHOICES, DIFFERENT, IDS, TARGETS, fast, gradients, run

ROPE = CHOICES["positions/rope"]
IDS_ = torch.tensor(IDS)
COUNT = ROPE.context_length
SHALLOW = fast(dataclasses.replace(ROPE, n_layer=1))
"""The compiler takes its time for each layer, and one has everything."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def near(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


def graph_of(act: Callable[..., Any], *given: Any) -> Counter[str]:
    """The operations of the one graph that the compiler makes of it."""
    found: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    torch.compile(act, backend=keep, fullgraph=True)(*given)
    assert len(found) == 1
    return Counter(str(node.target) for node in found[0].graph.nodes if node.op.startswith("call"))


@pytest.mark.rotating
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_choice_is_one_graph(name: str) -> None:
    model = fast(dataclasses.replace(CHOICES[name], n_layer=1))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    near(compiled(IDS_), model(IDS_))


def test_a_tap_is_not_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    tapped = graph_of(SHALLOW, IDS_)
    torch._dynamo.reset()
    monkeypatch.setattr(TapScope, "__call__", lambda self, name, value: value)
    for module in ("transformer", "positions"):
        monkeypatch.setattr(f"pellucid.engine.{module}.tap", lambda name, value: value)
    assert tapped == graph_of(fast(SHALLOW.config), IDS_)


def test_compiled_code_steps_aside_for_a_recording_and_an_edit() -> None:
    model = SHALLOW
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    plain = compiled(IDS_)
    with record() as seen:
        near(compiled(IDS_), plain)
    with record() as eager:
        model(IDS_)
    assert list(seen) == list(eager) and all(torch.equal(seen[name], eager[name]) for name in seen)
    with edit("logits", lambda x: x * 0):
        assert not compiled(IDS_).any()
    near(compiled(IDS_), plain)


def test_a_compiled_training_step_has_the_same_loss_and_gradients() -> None:
    eager, model = SHALLOW, fast(SHALLOW.config)
    eager.zero_grad()
    run(eager, IDS, TARGETS).backward()

    def step(ids: Tensor, targets: Tensor) -> Tensor:
        return loss(model(ids), targets)

    torch.compile(step, backend="aot_eager", fullgraph=True)(IDS_, torch.tensor(TARGETS)).backward()
    wanted = gradients(eager)
    for name, got in gradients(model).items():
        near(torch.from_numpy(got), torch.from_numpy(wanted[name]))


def decode(compiled: Callable[..., Tensor], model: Transformer, dtype: torch.dtype) -> None:
    """Token by token through compiled code equals token by token without; only the first may compile."""
    one, other = (Cache(model.config, 1, COUNT, dtype=dtype, stride=COUNT) for _ in range(2))
    with torch.no_grad():
        for t in range(COUNT):
            ids = torch.tensor([[t % ROPE.vocab_size]])
            one.reserve(1)
            with torch._dynamo.config.patch(error_on_recompile=t > 0):
                got = compiled(ids, cache=one)
            one.advance(1)
            near(got, model.forward_cached(ids, other))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8])
def test_decoding_with_a_static_cache_compiles_once(dtype: torch.dtype) -> None:
    decode(torch.compile(SHALLOW, backend="eager", fullgraph=True), SHALLOW, dtype)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_the_real_compiler_decodes_what_the_model_does_and_compiles_once() -> None:
    """Above 10 s on a busy machine: it writes, compiles and loads C++."""
    decode(torch.compile(SHALLOW, fullgraph=True), SHALLOW, torch.float64)


def test_tables_grow_beneath_compiled_code() -> None:
    """A text beyond the positions of the tables breaks the graph where they are made longer, not the step."""
    config = dataclasses.replace(ROPE, n_layer=1, context_length=4 * FIRST_POSITIONS)
    ids = torch.arange(2 * FIRST_POSITIONS + 1)[None] % config.vocab_size
    compiled = fast(config)
    with torch.no_grad():
        found = torch.compile(compiled, backend="eager")(ids)
        assert compiled.positions.covered > 2 * FIRST_POSITIONS
        assert torch.equal(found, fast(config)(ids))


# ---- where compiled code is kept

COMPILE = """
import torch
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer

torch.manual_seed(0)
config = ModelConfig.from_dict(
    dict(vocab_size=50, d_model=32, n_layer=1, n_head=2, context_length=16, positions="rope", mlp="swiglu")
)
model, ids = Transformer(config), torch.arange(10)[None]
for dtype in (torch.float32, torch.float64):
    model.to(dtype)
    got = torch.compile(model, fullgraph=True)(ids)
    assert (got - model(ids)).abs().max() < 1e-4, (got - model(ids)).abs().max()
"""


def test_another_instruction_set_processor_or_version_has_another_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [name_folder("AVX512", "a"), name_folder("AVX2", "a"), name_folder("AVX512", "b")]
    monkeypatch.setattr(torch, "__version__", "9.9")
    names.append(name_folder("AVX512", "a"))
    assert len(set(names)) == 4 and all(name.startswith(OWN) for name in names)


def test_the_engine_uses_the_folder_of_this_machine_inside_of_the_users(tmp_path: Path) -> None:
    assert Path(os.environ[VARIABLE]) == find_folder(os.environ[VARIABLE])
    assert find_folder(str(tmp_path)).parent == tmp_path


def test_a_process_of_another_instruction_set_leaves_the_folder_that_it_inherits(tmp_path: Path) -> None:
    inherited = tmp_path / f"{OWN}of-another-machine"
    assert find_folder(str(inherited)) == find_folder(str(tmp_path))


def test_clearing_removes_our_folder_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, is_left in ((f"{OWN}x", False), ("users", True)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv(VARIABLE, str(folder))
        clear_cache()
        assert folder.exists() == is_left


@pytest.mark.torture
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_a_folder_filled_under_another_instruction_set_changes_no_number(tmp_path: Path) -> None:
    """Above 10 s: four processes compile."""
    for capability in ("avx2", None, "default", None):
        chosen = {} if capability is None else {"ATEN_CPU_CAPABILITY": capability}
        environment = os.environ | {VARIABLE: str(tmp_path)} | chosen
        subprocess.run([sys.executable, "-c", COMPILE], env=environment, check=True, timeout=300)
    assert len(list(tmp_path.iterdir())) == 3
