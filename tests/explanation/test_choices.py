"""What is known about every choice: every folder, true costs, lines that configs read, honest pictures."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid import parts
from pellucid.base import registry
from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig, preset
from pellucid.explanation.choice_pictures import pictures
from pellucid.explanation.choices import (
    OTHER_FAMILIES,
    PRESET,
    Choice,
    ChoiceFamily,
    compare_costs,
    families,
    find_choices,
)
from pellucid.parts import Part
from pellucid.parts.positions import Table
from pellucid.parts.positions.rope import Rope
from pellucid.report.chart import Chart, Heatmap
from pellucid.report.text import write_text

PACKAGE = Path(pellucid.__file__).parent
ALL = [(family, choice) for family in families() for choice in family.choices]
IDS = [f"{family.name}/{choice.kind}" for family, choice in ALL]


def one(name: str) -> tuple[ChoiceFamily, Choice]:
    (found,) = find_choices(name)
    return found


def test_every_file_of_every_folder_is_a_choice_with_an_idea() -> None:
    known = {f"{name}/{kind}" for name in parts.families() for kind in parts.kinds(name)}
    for name, (home, _) in OTHER_FAMILIES.items():
        known |= {f"{name}/{kind}" for kind in registry.kinds(f"pellucid.{home.replace('/', '.')}")}
    assert {name for name in IDS if not name.startswith("biases/")} == known
    assert len(IDS) == len(set(IDS))
    assert all(choice.idea for _, choice in ALL)


def test_nothing_of_it_needs_torch() -> None:
    script = (
        "import sys; from pellucid.explanation.choices import families; families(); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_key_of_a_config_that_takes_a_part_stands_under_its_family_with_its_default() -> None:
    message = {key: (family.name, kind) for family in families() for key, kind in family.keys.items()}
    usual = ModelConfig(vocab_size=4, context_length=8, n_layer=1, n_head=2, d_model=8)
    for entry in dataclasses.fields(ModelConfig):
        if isinstance(entry.type, type) and issubclass(entry.type, Part):
            assert message.pop(entry.name) == (entry.type.family, getattr(usual, entry.name).kind)
    assert message == {"biases": ("biases", "none")}


@pytest.mark.parametrize(("family", "choice"), ALL, ids=IDS)
def test_the_line_for_a_config_makes_the_choice(family: ChoiceFamily, choice: Choice) -> None:
    for key in family.keys | family.recipe:
        line = choice.to_toml(key)
        assert len(line) <= 82
        given = tomllib.loads(line)[key]
        if family.name == "biases":
            assert tuple(given) == choice.value
        else:
            assert type(choice.value).read(given) == choice.value


def test_what_a_recipe_chooses_stands_under_its_family_with_its_default() -> None:
    message = {family.name: family.recipe for family in families() if family.recipe}
    assert message == {"optimizers": {"optimizer": "adamw"}, "schedules": {"schedule": "cosine"}}
    assert find_choices("schedule") == find_choices("schedules")
    assert all(not list(compare_costs(*pair)) for pair in find_choices("optimizers"))


def test_a_schedule_is_drawn_with_its_warm_up_and_past_its_end() -> None:
    (chart,) = pictures(one("schedules/linear")[1].value)
    assert isinstance(chart, Chart)
    (series,) = chart.series
    curve = series.y
    at = {int(step): float(share) for step, share in zip(series.x, curve, strict=True)}
    assert (at[0], at[95], at[100], at[550], curve[-1]) == (0.01, 0.96, 1.0, 0.5, 0.0)


def test_costs_are_shown_for_a_shape_that_makes_every_default_choice() -> None:
    made = preset(PRESET).parts()
    message = {key: kind for family in families() for key, kind in family.keys.items() if key in made}
    assert {key: part.kind for key, part in made.items()} == message


def test_learned_positions_cost_one_row_for_each_place_of_the_context() -> None:
    """SmolLM2-135M has a context of 8,192 and 576 channels."""
    (beside,) = compare_costs(*one("learned"))
    assert beside.here["positions"].parameters - beside.usual["positions"].parameters == 8192 * 576
    assert "positions" in beside.parts and "feed-forward" not in beside.parts
    assert beside.length == 8192


def test_an_own_unembedding_costs_a_second_vocabulary() -> None:
    (beside,) = compare_costs(*one("unembeddings/linear"))
    assert beside.parts == ["unembedding"]
    assert beside.here["unembedding"].parameters == 49152 * 576


def test_a_choice_is_costed_at_every_key_whose_default_is_another() -> None:
    assert [beside.key for beside in compare_costs(*one("norms/rms_norm"))] == ["embed_norm", "qk_norm"]
    assert not list(compare_costs(*one("norms/none")))[1:]


def test_a_choice_that_does_not_go_with_the_shape_says_why_instead_of_a_cost() -> None:
    family, choice = one("rope")
    wrong = dataclasses.replace(choice, kind="other", value=Rope(layout="thirds"))
    (beside,) = compare_costs(family, wrong)
    assert "layouts halves and pairs" in beside.why
    assert beside.parts == []


def test_names_are_families_keys_kinds_or_both() -> None:
    assert find_choices("masks") == find_choices("mask")
    assert one("outputs/linear")[1].family == "outputs"
    assert one("rope")[1].value == Rope()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rop", "Did you mean 'rope'?"),
        ("linear", "outputs/linear or unembeddings/linear or schedules/linear"),
        ("masks/causa", "Did you mean 'masks/causal'?"),
        ("", "'' is not a family or a kind"),
    ],
)
def test_a_wrong_name_is_reported_with_what_would_work(name: str, words: str) -> None:
    with pytest.raises(UsageError) as message:
        find_choices(name)
    assert words in str(message.value)


def test_a_source_is_found_in_a_docstring_where_a_file_is_not_a_part() -> None:
    assert one("xavier")[1].source == "Glorot and Bengio 2010"
    assert one("hugging_face/llama")[1].source.startswith("Touvron et al. 2023, arXiv:2302.13971")


def test_a_window_is_drawn_as_a_band() -> None:
    (heatmap,) = pictures(one("window")[1].value)
    assert isinstance(heatmap, Heatmap)
    size = int(heatmap.subtitle.removeprefix("size = "))
    assert 1 < size < len(heatmap.values), "small enough to show"
    i, j = np.indices(heatmap.values.shape)
    np.testing.assert_array_equal(heatmap.values, (j <= i) & (i - j < size))
    assert list(write_text(heatmap))[1:4] == ["█" + " ·" * 15, "█ █" + " ·" * 14, "█ █ █" + " ·" * 13]


def test_a_kind_of_rope_is_drawn_beside_rope_and_rope_itself_alone() -> None:
    assert [picture.title for picture in pictures(Rope())] == ["rotation per position"]
    _, beside = pictures(one("rope_linear")[1].value)
    assert isinstance(beside, Chart)
    np.testing.assert_allclose(beside.series[0].y, 1 / one("rope_linear")[1].value.factor)


def test_pairs_that_do_not_rotate_leave_a_gap() -> None:
    @dataclasses.dataclass(frozen=True)
    class Half(Rope):
        def frequencies(self, d_head: int) -> Table:
            return super().frequencies(d_head)[: d_head // 4]

    chart, _ = pictures(Half())
    assert isinstance(chart, Chart)
    assert np.isnan(chart.series[0].y).tolist() == [False] * 16 + [True] * 16
    assert len(list(write_text(chart))) == 13


def test_relu_in_characters_is_flat_and_then_rises() -> None:
    """From −4 to 0 the curve lies at 0, which is four fifths down from 4 to −1."""
    (chart,) = pictures(one("relu")[1].value)
    rows = [row.split("│")[1] for row in write_text(chart) if "│" in row]
    assert rows[7].startswith("⣀" * 20)
    assert rows[0].strip() != "" and rows[0].startswith(" " * 40)
    assert rows[8] == rows[9] == ""


@pytest.mark.parametrize(("family", "choice"), ALL, ids=IDS)
def test_every_picture_can_be_drawn(family: ChoiceFamily, choice: Choice) -> None:
    for picture in pictures(choice.value):
        tables = [picture.values] if isinstance(picture, Heatmap) else [line.y for line in picture.series]
        assert not any(np.isinf(table).any() or np.isnan(table).all() for table in tables)
        assert all(len(line) <= 82 for line in write_text(picture))
