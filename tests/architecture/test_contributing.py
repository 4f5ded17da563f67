"""What CONTRIBUTING.md promises is true of the lines that it prints, a file and a class."""

import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import EpsilonLogitsWarper

from pellucid import parts
from pellucid.base import registry
from pellucid.cli.learn import learn
from pellucid.config import ModelConfig
from pellucid.config.cost import cost, total
from pellucid.engine.cache import Cache
from pellucid.explanation import choices
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.learning.lessons import c_examples, document, ladder
from pellucid.learning.lessons.page import find_literals
from pellucid.learning.lessons.terminal import write_text
from pellucid.learning.sheets.file import fill_key
from pellucid.learning.sheets.mark import Grade, mark_sheet
from pellucid.model import Model
from pellucid.reference.training import forward
from pellucid.verification.checks.catalogue import CHECKS
from pellucid.verification.checks.check import Subject
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_mismatch
from tests.agreement.engines import IDS, SIZES, Runs, array, fast
from tests.agreement.test_engines import agree
from tests.formats.gguf import random_models
from tests.parts.samplers.rows import agree as agree_on_rows
from tests.parts.samplers.rows import apply, check_twin, random_rows
from tests.reference.models import weights

TEXT = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
FILE, CLASS, SAMPLER, FAULT, PROGRAM = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(PAGE,) = re.findall(r"```markdown\n(.*?)```", TEXT, re.DOTALL)
KERPLE = {"positions": {"kind": "kerple", "slope": 0.5}}
REGLU = {"mlp": {"kind": "reglu"}}
CHOICES = {"a file in a folder": KERPLE, "a class in a module": REGLU, "both": KERPLE | REGLU}


@pytest.fixture
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of the page is in the folder, and the class in the module, as far as Python can tell."""
    (tmp_path / "kerple.py").write_text(FILE, "utf-8")
    folder, module = parts.home("positions"), parts.home("mlps")
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    exec(CLASS, vars(module))
    for cached in (registry._members, choices.families):
        cached.cache_clear()
    yield
    sys.modules.pop("pellucid.parts.positions.kerple", None)
    del vars(module)["Reglu"]
    for cached in (registry._members, choices.families):
        cached.cache_clear()


@pytest.fixture(params=CHOICES)
def config(_added: None, request: pytest.FixtureRequest) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | CHOICES[request.param])


@pytest.mark.parametrize("code", [FILE, CLASS], ids=["file", "class"])
def test_the_lines_of_its_body_are_ten(code: str) -> None:
    """Imports and blank lines apart."""
    written = [line for line in code.splitlines() if line.strip() and not line.startswith(("from", "import"))]
    assert len(written) <= 10


@pytest.mark.usefixtures("_added")
def test_it_is_a_choice_of_the_config_with_its_settings() -> None:
    config = ModelConfig.from_dict(SIZES | KERPLE | REGLU)
    assert "kerple" in parts.kinds("positions") and "reglu" in parts.kinds("mlps")
    assert config.to_dict()["positions"] == KERPLE["positions"]
    assert config.to_dict()["mlp"] == REGLU["mlp"]
    assert ModelConfig.from_json(config.to_json()) == config


def test_both_engines_have_it_forward_and_backward(config: ModelConfig) -> None:
    agree(Runs(config))
    tape = forward(config, weights(config), IDS)
    if config.positions.kind == "kerple":
        assert tape["position_bias"][0, 3, 1] == pytest.approx(-0.5 * np.log(3))
    if config.mlp.kind == "reglu":
        gate, up = tape["blocks.0.mlp.gate"], tape["blocks.0.mlp.up"]
        assert tape["blocks.0.mlp.hidden"] == pytest.approx(np.maximum(gate, 0) * up)


def test_it_is_cached(config: ModelConfig) -> None:
    model, cache, ids = fast(config), Cache(config, 2, 5, dtype=torch.float64), torch.tensor(IDS)
    with torch.no_grad():
        steps = torch.cat([model.forward_cached(ids[:, t : t + 1], cache) for t in range(5)], 1)
        assert find_mismatch("logits", array(steps), array(model(ids)), CACHED_AGAINST_FULL) is None


def test_it_is_costed_and_explained(config: ModelConfig) -> None:
    tape = forward(config, weights(config), IDS)
    held = sum(tape.values[name].size for name, role in tape.roles.items() if role == "act")
    assert total(cost(config, batch=2, length=5, width=1)).activation_bytes == held
    if config.positions.kind == "kerple":
        assert "position_bias" in str(derive(Trace(tape), "blocks.0.attn.biased[b=0,h=1,t=3,s=1]", depth=0))
    if config.mlp.kind == "reglu":
        assert "max(0, " in str(derive(Trace(tape), "blocks.0.mlp.act[b=0,t=3,f=1]", depth=0))


@pytest.mark.usefixtures("_added")
def test_it_is_verified() -> None:
    """Above 10 s on a busy machine: all quick checks, one layer and one head being as good as more."""
    small = {"n_layer": 1, "d_model": 32, "d_ff": 32, "n_head": 1, "n_kv_head": 1, "context_length": 32}
    subject = Subject(Model(random_models.model(random_models.LLAMA | small | KERPLE | REGLU)))
    for check in CHECKS:
        if check.quick:
            finding = check.measure(subject)
            assert finding.verdict in ("equal", "noise", "skipped", "cannot tell"), f"{check.name}: {finding}"


@pytest.mark.usefixtures("_added")
def test_it_is_described_and_on_the_page() -> None:
    ((_, choice),) = choices.find_choices("kerple")
    assert choice.idea.startswith("Kerple's logarithmic bias") and "arXiv:2205.09921" in choice.source
    from scripts.choices_page import choices_page

    ((_, choice),) = choices.find_choices("reglu")
    assert choice.idea.startswith("Gated MLP with ReLU") and "arXiv:2002.05202" in choice.source
    rows = {line.split("`")[1]: line for line in choices_page() if line.startswith("| `")}
    assert "ln(1 + \\|i − j\\|)" in rows["kerple"] and "max(0, X W_G)" in rows["reglu"]


# ---- a sampler

EPSILON = {"kind": "epsilon", "epsilon": 0.05}


@pytest.fixture
def _sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file of the page is in the folder, as far as Python can tell."""
    (tmp_path / "epsilon.py").write_text(SAMPLER, "utf-8")
    folder = parts.home("samplers")
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    for cached in (registry._members, choices.families):
        cached.cache_clear()
    yield
    sys.modules.pop("pellucid.parts.samplers.epsilon", None)
    for cached in (registry._members, choices.families):
        cached.cache_clear()


@pytest.mark.usefixtures("_sampler")
def test_a_sampler_is_that_of_transformers_and_its_own_twin() -> None:
    rows = random_rows(100)
    theirs = EpsilonLogitsWarper(0.05)(torch.zeros(100, 1, dtype=torch.int64), rows)
    agree_on_rows(apply(EPSILON, rows), theirs)
    check_twin(EPSILON, rows[:30])


@pytest.mark.usefixtures("_sampler")
def test_a_sampler_is_used_by_the_engine_recorded_and_described() -> None:
    sampling = Sampling(temperature=1.0, samplers=(EPSILON,), seed=0, max_new_tokens=4)
    engine = Engine(fast(ModelConfig.from_dict(SIZES)))
    (completion,) = engine.add(Request((1, 2), sampling, ledger=True)).result()
    removed = [removal for entry in completion.entries for removal in entry.removed]
    assert removed and {removal.sampler for removal in removed} == {"epsilon"}
    assert all(entry.probability >= 0.05 for entry in completion.entries)
    ((_, choice),) = choices.find_choices("epsilon")
    assert choice.idea.startswith("Epsilon sampling") and "arXiv:2210.15191" in choice.source


# ---- a lesson


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ladder.Lesson]:
    """The page and the program are in the folder with the others, as far as Python can tell."""
    folder = tmp_path / "c_examples"
    shutil.copytree(ladder.FOLDER / "c_examples", folder)
    (folder / "l20_temperature.md").write_text(PAGE, "utf-8")
    (folder / "l20_temperature.py").write_text(PROGRAM, "utf-8")
    monkeypatch.setattr(ladder, "FOLDER", tmp_path)
    monkeypatch.setattr(c_examples, "__path__", [str(folder)])
    ladder.lessons.cache_clear()
    yield ladder.find_lesson("lesson-20")
    ladder.lessons.cache_clear()
    sys.modules.pop("pellucid.learning.lessons.c_examples.l20_temperature", None)


def test_a_lesson_is_on_the_ladder_and_types_no_number(
    lesson: ladder.Lesson, capsys: pytest.CaptureFixture[str]
) -> None:
    learn()
    assert re.search(r"20 +Temperature +13", capsys.readouterr().out)
    assert not [found for section in lesson.page.sections for found in find_literals(section.text)]


def test_a_lesson_is_a_document_and_text_for_a_terminal(lesson: ladder.Lesson) -> None:
    text = "\n".join(document.write_document(lesson))
    cold = float(lesson.program.traces["cold"].tape["p"][2])
    assert f"cold, the largest wins: {cold:.4f}" in text and "softmax.py" in text
    assert any("Hot, all tokens are alike" in line for line in write_text(lesson, 80))


def test_a_lesson_has_worksheets_with_its_mistakes(lesson: ladder.Lesson) -> None:
    for level in (0, 1, 2):
        (sheet,) = ladder.lesson_sheets(lesson, level)
        assert all(box.grade is Grade.RIGHT for box in mark_sheet(fill_key(sheet)).boxes)
    assert not ladder.find_hidden_mistakes(lesson, ladder.make_sheets(lesson, 0))
    assert ladder.lesson_sheets(lesson, seed=1)[0].key != sheet.key


def test_a_lesson_runs_alone(lesson: ladder.Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(lesson.path.with_suffix(".py")), run_name="__main__")
    assert "=== warm" in capsys.readouterr().out


def test_the_fault_of_the_page_is_planted() -> None:
    planted = (Path(__file__).parent.parent / "faults" / "in_kernels.py").read_text("utf-8")
    assert "\n".join(FAULT.splitlines()[:3]) in planted
