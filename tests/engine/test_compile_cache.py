"""Compiled code is kept apart by what it was compiled for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pellucid.engine import compile_cache
from pellucid.engine.compile_cache import OWN, VARIABLE, find_folder, name_folder

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
        compile_cache.clear()
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
