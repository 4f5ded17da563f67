"""The lens of the last state is the model, and that of any other is the model's last step on it."""

import math
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.formats.huggingface import read
from pellucid.interpretability import lens as lens_module
from pellucid.interpretability.lens import Lens, compute_lens, list_states, read_logits, view_lens
from pellucid.interpretability.runner import EngineRunner, PromptedModel, Runner, SpecificationRunner
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg
from tests.agreement.engines import CHOICES, COVER, config_of, fast
from tests.formats.huggingface.models import random_model
from tests.golden.make_huggingface import float64_throughout
from tests.interpretability.planted import PLANTED, REPEATED
from tests.model.folders import SIZES
from tests.reference.models import CONFIGS, weights
from tests.report.svg_text import find_faults

NAMES = ("states", "top_ids", "top_probs", "targets", "target_probs", "target_ranks", "entropy", "divergence")


def look(runner: Runner, ids: list[int], **asked: object) -> Lens:
    values = runner.run(ids, list_states(runner.config))
    return compute_lens(values, runner.config, runner.weights, ids, **asked)  # type: ignore[arg-type]


def check_same(a: Lens, b: Lens) -> None:
    for name in NAMES:
        one, other = getattr(a, name), getattr(b, name)
        assert one == other if name == "states" else np.allclose(one, other, rtol=1e-10, atol=1e-12), name


def test_the_lens_of_the_last_state_is_the_models_logits() -> None:
    placements = [
        config for name, config in CHOICES.items() if name.partition("/")[0] in ("placement", "norm")
    ]
    covered = [config for config in map(config_of, COVER[::5]) if config]
    for config in (*placements, *CONFIGS.values(), CHOICES["logit_cap/tanh"], *covered):
        values, ids = weights(config), [1, 3, 1]
        seen = SpecificationRunner(config, values).run(ids, [*list_states(config), "logits"])
        state = seen[list_states(config)[-1]][0]
        assert np.array_equal(read_logits(config, values, state), seen["logits"][0])


def test_abcd_by_hand() -> None:
    """The embedding of B is (0, 1), so its logits are (0, 1, 1, 0); after attention they are (a, b, b, a)."""
    model = pellucid.load("abcd")
    found = look(SpecificationRunner(model.config, model.weights), [0, 1], tokens=[3], target=2, top=2)
    assert found.states == ("blocks.0.resid_pre", "blocks.0.resid_post")
    p = math.e / (2 * math.e + 2)
    b = math.exp(math.sqrt(2)) / (1 + math.exp(math.sqrt(2)))
    q = math.exp(b) / (2 * math.exp(b) + 2 * math.exp(1 - b))
    assert found.target_probs[:, 1] == pytest.approx([p, q], abs=1e-14)
    assert found.token_probs[:, 1, 0] == pytest.approx([0.5 - p, 0.5 - q], abs=1e-14)
    assert found.top_ids[:, 1].tolist() == [[1, 2], [1, 2]] and found.target_ranks[:, 1].tolist() == [0, 0]
    assert found.targets.tolist() == [1, 2]
    assert found.entropy[0, 1] == pytest.approx(-2 * p * math.log(p) - 2 * (0.5 - p) * math.log(0.5 - p))
    kl = 2 * q * math.log(q / p) + 2 * (0.5 - q) * math.log((0.5 - q) / (0.5 - p))
    assert found.divergence[:, 1] == pytest.approx([kl, 0], abs=1e-14)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bare"])
def test_both_engines_have_the_same_lens(name: str) -> None:
    config, ids = CONFIGS[name], [1, 3, 1]
    check_same(look(SpecificationRunner(config, weights(config)), ids), look(EngineRunner(fast(config)), ids))


def test_a_long_prompt_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["llama"]
    runner, steps = SpecificationRunner(config, weights(config)), []
    whole = look(runner, [1, 3, 1], tokens=[2])
    monkeypatch.setattr(lens_module, "CHUNK", 2 * config.vocab_size)
    parts = look(runner, [1, 3, 1], tokens=[2], progress=lambda done, total: steps.append((done, total)))
    check_same(whole, parts)
    assert steps[-1] == (3 * 4, 3 * 4) and len(steps) > 4
    assert whole.targets.tolist() == [3, 1, int(whole.top_ids[-1, -1, 0])]


def test_the_lens_is_that_of_transformers(tmp_path: Path) -> None:
    import torch

    model, writer = random_model("llama", 0, **SIZES["llama"])
    pretrained = read(writer(tmp_path))
    ids = [5, 200, 17, 3]
    with float64_throughout(), torch.no_grad():
        twin = type(model)(model.config).double().eval()
        twin.load_state_dict(model.state_dict())
        outer = twin(torch.tensor([ids]), output_hidden_states=True)
        theirs = [twin.lm_head(twin.model.norm(state))[0].numpy() for state in outer.hidden_states[:-1]]
    runner = SpecificationRunner(pretrained.config, pretrained.weights)
    seen = runner.run(ids, list_states(runner.config))
    after_blocks = [name for name in list_states(runner.config) if "mid" not in name]
    for name, wanted in zip(after_blocks, [*theirs, outer.logits[0].numpy()], strict=True):
        assert np.abs(read_logits(runner.config, runner.weights, seen[name][0]) - wanted).max() < 1e-10


def test_a_view_shows_the_tokens_of_every_state() -> None:
    config = CONFIGS["gpt2"]
    prompted = PromptedModel(
        "gpt2", SpecificationRunner(config, weights(config)), (0, 1, 3), "token {}".format
    )
    view = view_lens(prompted, tokens=[2], token=4)
    assert [row[0] for row in view.tables[0].rows] == [
        "L1",
        "L1 attention",
        "L0",
        "L0 attention",
        "embedding",
    ]
    assert "token 4" in view.tables[0].caption
    assert view.data["divergence"][-1] == [0, 0, 0]
    assert not find_faults(write_svg(make_figure("", *view.plots)))
    config = CHOICES["placement/post"]
    view = view_lens(PromptedModel("post", SpecificationRunner(config, weights(config)), (1,)))
    assert any("no final norm" in note for note in view.notes)


def test_equal_tokens_come_by_their_ids() -> None:
    """The embedding of the planted model has no next token: all logits are 0."""
    found = look(PLANTED[0], REPEATED, top=3)
    assert found.top_ids[0].tolist() == [[0, 1, 2]] * len(REPEATED)


def test_a_token_is_the_target_of_the_chosen_position() -> None:
    config = CONFIGS["gpt2"]
    prompted = PromptedModel("gpt2", SpecificationRunner(config, weights(config)), (0, 1, 3))
    probs = prompted.runner.run(prompted.ids, ["probs"])["probs"][0]
    last = int(probs[2].argmax())
    for position, targets in ((-1, [1, 3, 4]), (2, [1, 3, 4]), (1, [1, 4, last]), (-3, [4, 3, last])):
        view = view_lens(prompted, token=4, position=position)
        assert view.data["targets"] == targets
        assert view.tables[0].rows[0][2] == pytest.approx(probs[position, 4], abs=1e-12)


@pytest.mark.parametrize(
    ("asked", "error"),
    [({"target": 9}, TokenError), ({"tokens": [-1]}, TokenError)],
)
def test_tokens_outside_of_the_vocabulary_are_refused(
    asked: dict[str, object], error: type[PellucidError]
) -> None:
    model = pellucid.load("abcd")
    runner = SpecificationRunner(model.config, model.weights)
    with pytest.raises(error):
        look(runner, [0, 1], **asked)
    with pytest.raises(UsageError):
        view_lens(PromptedModel("abcd", runner, (0, 1)), position=2)
