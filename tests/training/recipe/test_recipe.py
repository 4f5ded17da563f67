"""A recipe is one strict table: what it does not know is refused by name, and it comes back as it was."""

import dataclasses
import tomllib

import pytest

from pellucid.base.errors import ConfigError
from pellucid.config import preset
from pellucid.data.generated import tasks
from pellucid.generation.settings.sampling import Sampling
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table, recipe_names
from pellucid.training.recipe.sections import EvaluationSettings

SMALL = {"out": "runs/a", "steps": 10, "data": {"path": "stories:easy"}, "model": {"context_length": 8}}


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_is_read_and_comes_back_from_its_own_toml(name: str) -> None:
    recipe = Recipe.from_dict(read_table(name))
    assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe
    assert recipe.start or recipe.config(100).vocab_size == 100


def test_the_recipes_of_the_manual_are_there() -> None:
    wanted = {"stories", "shakespeare_char", "books", "gpt2_124m", "smollm2_finetune"}
    assert wanted <= set(recipe_names())


def test_shakespeare_is_the_standard_setting() -> None:
    recipe = Recipe.from_dict(read_table("shakespeare_char"))
    config = recipe.config(65)
    sizes = (config.n_layer, config.n_head, config.d_model, config.context_length)
    assert sizes == (6, 6, 384, 256)
    assert recipe.data.validation == 0.1
    import math

    assert sum(map(math.prod, config.parameters().values())) <= 10.8e6


def test_a_key_can_be_set_from_the_command_line() -> None:
    table = override(SMALL, ["optimizer.lr=3e-4", "model.n_layer=2", "out=runs/b", "model.positions=learned"])
    recipe = Recipe.from_dict(table | {"model": table["model"] | {"n_head": 1, "d_model": 4}})
    assert (recipe.optimizer.lr, recipe.out, recipe.model["n_layer"]) == (3e-4, "runs/b", 2)
    assert recipe.config(5).positions.kind == "learned"
    assert Recipe.from_dict(override(SMALL, ["optimizer.kind=sgd", "optimizer.lr=1"])).optimizer.kind == "sgd"


@pytest.mark.parametrize("order", [1, -1])
def test_a_preset_gives_the_model_its_shape_and_a_key_then_changes_it(order: int) -> None:
    tiny = preset("tiny")
    recipe = Recipe.from_dict(override(SMALL, ["model=tiny", "model.n_layer=2"][::order]))
    assert recipe.config(tiny.vocab_size) == dataclasses.replace(tiny, n_layer=2)
    recipe = Recipe.from_dict(override(SMALL | {"model": "tiny"}, ["model.n_layer=2"]))
    assert recipe.config(tiny.vocab_size) == dataclasses.replace(tiny, n_layer=2)
    assert Recipe.from_dict(SMALL | {"model": "tiny"}).config(9).vocab_size == 9


def test_what_is_not_a_preset_and_a_preset_beside_a_start_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model must be one of .* 'tinny'.* Did you mean 'tiny'"):
        Recipe.from_dict(override(SMALL, ["model=tinny"]))
    with pytest.raises(ConfigError, match=r"model=tiny .* start=.smollm2."):
        override(SMALL, ["model=tiny", "start=smollm2"])


@pytest.mark.parametrize(
    ("name", "changes", "kind"),
    [
        ("stories", [], "scaled_residual"),
        ("task:copy", [], "scaled_residual"),
        ("stories", ["model=small"], "scaled_residual"),
        ("stories", ["model.d_model=252"], "scaled_residual"),
        ("stories", ["model.d_model=256"], "gpt2"),
        ("stories", ["model=medium"], "gpt2"),
        ("stories", ["train.initialization=gpt2"], "gpt2"),
        ("shakespeare_char", [], "gpt2"),
        ("shakespeare_char", ["train.initialization=xavier"], "xavier"),
        ("gpt2_124m", [], "gpt2"),
        ("smollm2_finetune", [], "gpt2"),
    ],
)
def test_a_narrow_model_is_initialized_by_fan_in_unless_the_recipe_names_another(
    name: str, changes: list[str], kind: str
) -> None:
    recipe = Recipe.from_dict(override(read_table(name), changes))
    assert recipe.train.initialization == kind
    assert f'initialization = "{kind}"' in recipe.to_toml()


@pytest.mark.parametrize("kind", tasks.kinds())
def test_a_text_that_is_made_has_the_recipe_of_its_kind(kind: str) -> None:
    recipe = Recipe.from_dict(read_table(f"task:{kind}"))
    assert (recipe.data.path, recipe.out) == (f"task:{kind}", f"runs/task-{kind}")
    assert recipe.length > tasks.find(kind)().longest
    assert recipe.model == Recipe.from_dict(read_table("task")).model


def test_a_text_of_no_kind_has_none() -> None:
    with pytest.raises(ConfigError, match="books:more"):
        read_table("books:more")


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("0.2", 0.2), ("others.txt", "others.txt")])
def test_what_is_held_out_is_a_share_or_a_text(text: str, value: float | str) -> None:
    recipe = Recipe.from_dict(override(SMALL, [f"data.validation={text}"]))
    assert recipe.data.validation == value and type(recipe.data.validation) is type(value)
    assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe


@pytest.mark.parametrize("text", ["2024", "2024-11-16", "1e3", "true", "nan", "[a]", "a b", '"2024"'])
def test_a_text_needs_no_quotes_whatever_it_looks_like(text: str) -> None:
    recipe = Recipe.from_dict(override(SMALL, [f"out={text}", f"evaluation.prompt={text}"]))
    assert recipe.out == recipe.evaluation.prompt == text.strip('"')
    assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe


def test_a_day_where_a_text_belongs_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"out must be a text, not 2024-11-16 \(a date\)"):
        Recipe.from_dict(override(SMALL | tomllib.loads("out = 2024-11-16"), ["steps=3"]))


def test_another_kind_comes_without_the_settings_of_the_one_before() -> None:
    table = override(
        read_table("stories"), ["optimizer.lr=0.1", "optimizer.kind=sgd", "schedule.kind=constant"]
    )
    recipe = Recipe.from_dict(table)
    assert recipe.optimizer.to_dict() == {"kind": "sgd", "lr": 0.1}
    assert recipe.schedule.kind == "constant"
    assert Recipe.from_dict(override(read_table("stories"), ["optimizer.kind=adamw"])).optimizer.lr == 2e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("stepz=3", "stepz.*'steps'"),
        ("data.pathh=x", r"a key of data.*'pathh'.*'path'"),
        ("model.n_layers=3", r"model.*'n_layers'.*'n_layer'"),
        ("model.vocab_size=3", r"data\.vocab_size"),
        ("optimizer.kind=adamv", "adamv.*'adamw?'"),
        ("steps=ten", "steps.*whole number.*'ten'"),
        ("steps=1e3", "steps.*use 1000"),
        ("steps=-1", "steps must be .* from 0 to .*, not -1"),
        ("train.dtype=float8", r"train\.dtype.*bfloat16.*'float8'"),
        ("data.batch_size=0", r"data\.batch_size must be .* from 1 to .*, not 0"),
        ("train.accumulate=3", r"batch_size=32.*train\.accumulate=3"),
        ("data.validation=1", r"data\.validation.*0\.9.*not 1"),
        ("data.validation=true", r"data\.validation.*True"),
        ("nothing", "'nothing'.*KEY=VALUE"),
        ("steps.more=1", r"steps\.more.*10"),
        ("train.clip=nan", r"train\.clip.*nan"),
        ("train.activation_checkpointing=maybe", "activation_checkpointing.*true or false.*'maybe'"),
        ("train.compile=maybe", r"train\.compile.*auto, true, false.*'maybe'"),
        ("train.compile=1", r"train\.compile.*auto.*1"),
    ],
)
def test_a_meaningless_override_is_refused_by_name(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Recipe.from_dict(override(SMALL, [change]))


def test_a_name_that_is_neither_recipe_nor_file_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"recipes are .*books"):
        read_table("")
    with pytest.raises(ConfigError, match=r"storys.*'stories'"):
        read_table("storys")


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="missing: steps"):
        Recipe.from_dict({key: value for key, value in SMALL.items() if key != "steps"})
    with pytest.raises(ConfigError, match="context_length"):
        Recipe.from_dict(SMALL | {"model": {}})


def test_samples_are_drawn_as_the_recipe_says_and_the_file_keeps_it() -> None:
    usual = Recipe.from_dict(read_table("stories"))
    assert usual.evaluation.sampling == Sampling(temperature=0.8, seed=0)
    changes = [
        "evaluation.sampling.temperature=0",
        "evaluation.sampling.regex=12",
        "evaluation.sampling.seed=3",
    ]
    changed = Recipe.from_dict(override(read_table("stories"), changes))
    assert changed.evaluation.sampling == Sampling(temperature=0, regex="12", seed=3)
    for recipe in (usual, changed):
        assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ("evaluation.sampling.temprature=1", "'temperature'"),
        ("evaluation.sampling.temperature=-1", "evaluation.sampling.temperature"),
        ("evaluation.sampling.beams=4", "evaluation.sampling.beams=4"),
        ("evaluation.sampling.max_new_tokens=4", "evaluation.sample"),
        ("evaluation.sampling.n=4", "evaluation.sampling.n"),
        ("evaluation.sampling=4", "evaluation.sampling"),
    ],
)
def test_settings_of_samples_that_cannot_be_are_refused(change: str, fact: str) -> None:
    with pytest.raises(ConfigError, match=fact):
        Recipe.from_dict(override(read_table("stories"), [change]))
    with pytest.raises(ConfigError, match="seed"):
        EvaluationSettings(sampling=Sampling())
