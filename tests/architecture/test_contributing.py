"""What CONTRIBUTING.md promises to whoever adds a position encoding is true of the lines that it prints."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid import parts, registry
from pellucid.cards import choices
from pellucid.checks.catalogue import CHECKS
from pellucid.checks.subject import Subject
from pellucid.config import ModelConfig
from pellucid.cost import cost, total
from pellucid.explain.derive import derive
from pellucid.explain.trace import Trace
from pellucid.judge.mismatch import CACHED_AGAINST_FULL, find_mismatch
from pellucid.model.cache import Cache
from pellucid.reference.training import forward
from pellucid.workbench import Model
from tests.agreement.engines import IDS, SIZES, TARGETS, array, fast
from tests.agreement.test_engines import agree
from tests.interop.gguf import made_up
from tests.reference.models import weights

TEXT = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
KIND = {"kind": "kerple", "slope": 0.5}


@pytest.fixture
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of the page, in the folder as far as Python can tell."""
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code
    (tmp_path / "kerple.py").write_text(code[1], "utf-8")
    folder = sys.modules["pellucid.parts.positions"]
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    for cached in (registry._listed, choices.families):
        cached.cache_clear()
    yield
    sys.modules.pop("pellucid.parts.positions.kerple", None)
    for cached in (registry._listed, choices.families):
        cached.cache_clear()


@pytest.fixture
def config(_added: None) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"positions": KIND})


def test_the_lines_of_its_body_are_ten() -> None:
    """From the class on, without what is for people: two lines of names and numbers, and the blank ones."""
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code
    written = [
        line for line in code[1].splitlines() if line.strip() and not line.startswith(("from", "import"))
    ]
    assert len(written) <= 10


def test_it_is_a_choice_of_the_config_with_its_settings(config: ModelConfig) -> None:
    assert "kerple" in parts.kinds("positions")
    assert config.to_dict()["positions"] == KIND
    assert ModelConfig.from_json(config.to_json()) == config


def test_both_engines_have_it_forward_and_backward(config: ModelConfig) -> None:
    agree(config, weights(config), IDS, TARGETS, None)
    tape = forward(config, weights(config), IDS)
    assert tape["position_bias"][0, 3, 1] == pytest.approx(-0.5 * np.log(3))


def test_it_is_cached(config: ModelConfig) -> None:
    model, cache, ids = fast(config), Cache(config, 2, 5, dtype=torch.float64), torch.tensor(IDS)
    with torch.no_grad():
        steps = torch.cat([model.extend(ids[:, t : t + 1], cache) for t in range(5)], 1)
        assert find_mismatch("logits", array(steps), array(model(ids)), CACHED_AGAINST_FULL) is None


def test_it_is_costed_and_explained(config: ModelConfig) -> None:
    tape = forward(config, weights(config), IDS)
    held = sum(tape.values[name].size for name, role in tape.roles.items() if role == "act")
    assert total(cost(config, batch=2, length=5, width=1)).activation_bytes == held
    told = str(derive(Trace(tape), "blocks.0.attn.biased[b=0,h=1,t=3,s=1]", depth=0))
    assert "position_bias" in told


@pytest.mark.usefixtures("_added")
def test_it_is_verified() -> None:
    subject = Subject(Model(made_up.model(made_up.LLAMA | {"positions": KIND})))
    for check in CHECKS:
        if check.quick:
            finding = check.measure(subject)
            assert finding.verdict in ("equal", "noise", "skipped"), f"{check.name}: {finding}"


@pytest.mark.usefixtures("_added")
def test_it_is_described_and_on_the_page() -> None:
    ((_, choice),) = choices.chosen("kerple")
    assert choice.idea.startswith("Kerple's logarithmic bias") and "arXiv:2205.09921" in choice.source
    from scripts.choices_page import choices_page

    row = next(line for line in choices_page() if line.startswith("| `kerple`"))
    assert "ln(1 + \\|i − j\\|)" in row
