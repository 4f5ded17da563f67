"""Plans follow the text and the time; costs are those that one counts by hand."""

import dataclasses
import math
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.base.errors import ConfigError
from pellucid.config import preset
from pellucid.config.cost import (
    count_adapter_parameters,
    count_flops_per_token,
    count_parameters,
    estimate_training_memory,
)
from pellucid.engine.device_memory import get_device_memory
from pellucid.parts.optimizers import OptimizerConfig
from pellucid.training.forecast import make_forecast
from pellucid.training.machine import measure_peak
from pellucid.training.plan import (
    EPOCHS,
    FINETUNE_EPOCHS,
    MEMORY_SHARE,
    SIZES,
    Budget,
    Plan,
    describe_longer,
    plan_finetuning,
    plan_pretraining,
)
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.recipe.sections import read_preset

SPEED = 178e9
TEXTS = (300, 5_000, 100_000, 1_115_394, 30_000_000, 10**9)
GB = 10**9


def parameters(plan: Plan) -> int:
    return count_parameters(plan.config)


def run(
    steps: int = 10,
    rows: int = 32,
    accumulate: int = 1,
    optimizer: str = "adamw",
    rank: int = 0,
    recompute: bool = False,
) -> Any:
    train = SimpleNamespace(
        accumulate=accumulate, dtype="float32", ema=0.0, activation_checkpointing=recompute
    )
    return SimpleNamespace(
        steps=steps,
        length=1024,
        lora=SimpleNamespace(rank=rank, targets=("blocks.*_proj",)),
        data=SimpleNamespace(batch_size=rows),
        train=train,
        optimizer=OptimizerConfig.read({"kind": optimizer}),
    )


def test_gpt2_trains_at_the_operations_per_token_that_one_counts_by_hand() -> None:
    """6 N for the matrices, the tied unembedding among them, and 12 L C T for scores and mixture."""
    layers, c, t, v = 12, 768, 1024, 50257
    assert count_flops_per_token(preset("gpt2")) == 6 * (layers * 12 * c**2 + c * v) + 12 * layers * c * t
    assert round(count_flops_per_token(preset("gpt2")) / 1e9, 3) == 0.854  # nanoGPT's count says 0.855


def test_a_forecast_of_gpt2_is_what_one_counts_by_hand() -> None:
    found = make_forecast(run(steps=10, rows=32), preset("gpt2"), peak=100e12)
    assert found.parameters == 124_439_808  # as Hugging Face counts them
    assert found.tokens_per_step == 32 * 1024 and found.tokens == 327_680
    assert found.flops == found.flops_per_token * 327_680
    assert found.seconds == pytest.approx(found.flops / 100e12 / 0.3)
    assert found.memory.weights == found.memory.gradients == 4 * 124_439_808
    assert found.memory.optimizer == 8 * 124_439_808
    text = "\n".join(found.lines())
    assert "124,439,808" in text and "30% of this machine's measured 100,000 GFLOP/s" in text


def test_the_memory_of_gpt2_in_two_bytes_is_near_what_others_measured() -> None:
    """nanoGPT, 124M, 32 rows of 1,024 in bfloat16 on a GPU: 21.5 GiB."""
    assert 0.8 < estimate_training_memory(preset("gpt2"), 32, width=2).total / 2**30 / 21.5 < 1.2


def test_parts_of_a_batch_take_less_memory_and_the_same_operations() -> None:
    whole, parts = (make_forecast(run(accumulate=n), preset("gpt2"), 1e12) for n in (1, 4))
    assert parts.flops == whole.flops
    assert parts.memory.activations == pytest.approx(whole.memory.activations / 4, rel=1e-3)


def test_a_forecast_knows_of_activation_checkpointing() -> None:
    kept, again = (make_forecast(run(recompute=how), preset("gpt2"), 1e12).memory for how in (False, True))
    assert again.activations < kept.activations / 2
    assert again.total - again.activations == kept.total - kept.activations


@pytest.mark.parametrize(("kind", "numbers"), [("sgd", 0), ("momentum", 1), ("adamw", 2)])
def test_the_states_of_an_optimizer_are_counted(kind: str, numbers: int) -> None:
    memory = make_forecast(run(optimizer=kind), preset("gpt2"), 1e12).memory
    assert memory.optimizer == numbers * memory.weights


@pytest.mark.parametrize("text", TEXTS)
def test_more_minutes_never_give_a_smaller_model(text: int) -> None:
    plans = [
        plan_pretraining(text, Budget(minutes, SPEED, 24 * GB))
        for minutes in (0.1, 1, 3, 10, 60, 1000, 100_000)
    ]
    assert all(parameters(a) <= parameters(b) for a, b in pairwise(plans))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("memory", [GB // 10, GB, 24 * GB])
def test_no_plan_takes_more_memory_than_there_is(text: int, memory: int) -> None:
    for minutes in (1, 100, 100_000):
        plan = plan_pretraining(text, Budget(minutes, 1e15, memory))
        rows = plan.overrides["data.batch_size"]
        assert estimate_training_memory(plan.config, rows).total <= MEMORY_SHARE * memory


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("minutes", [1, 10, 100])
def test_a_plan_keeps_to_the_time_and_to_the_number_of_epochs(text: int, minutes: int) -> None:
    plan = plan_pretraining(text, Budget(minutes, SPEED, 24 * GB))
    config = plan.config
    tokens = plan.overrides["steps"] * plan.overrides["data.batch_size"] * config.context_length
    one_step = tokens / plan.overrides["steps"]
    assert (tokens - one_step) * count_flops_per_token(config) <= SPEED * 0.3 * 60 * minutes
    assert tokens - one_step <= EPOCHS * text


def test_all_sizes_of_the_table_are_models_and_grow() -> None:
    plans = [plan_pretraining(10**12, Budget(minutes, 1e15, 10**13)) for minutes in (1e-6, 1e6)]
    assert plans[0].overrides["model.d_model"] == SIZES[0].d_model
    assert plans[1].overrides["model.d_model"] == SIZES[-1].d_model
    assert "largest of the table" in plans[1].reasons[1]


def test_every_plan_is_a_recipe_and_says_why() -> None:
    table = {"out": "runs/x", "steps": 1, "data": {"path": "x.txt"}, "model": {}}
    for text in TEXTS:
        plan = plan_pretraining(text, Budget(10, SPEED, 24 * GB))
        words = [f"{key}={value}" for key, value in plan.overrides.items()]
        recipe = Recipe.from_dict(override(table, words))
        assert recipe.config(recipe.data.vocab_size) == plan.config
        assert all("because" in reason for reason in plan.reasons)


def test_a_text_that_is_read_often_gets_dropout() -> None:
    assert plan_pretraining(100_000, Budget(60, SPEED, 24 * GB)).overrides["model.dropout"] == "bernoulli"
    assert "model.dropout" not in plan_pretraining(10**9, Budget(1, SPEED, 24 * GB)).overrides


def test_a_shape_that_is_asked_for_is_kept_and_the_rest_is_planned_for_it() -> None:
    shape = read_preset("tiny", "model")
    plan = plan_pretraining(10**8, Budget(10, SPEED, 24 * GB), shape=shape)
    assert dataclasses.replace(plan.config, vocab_size=5000, dropout="none") == preset("tiny")
    assert not {"model.n_layer", "model.d_model", "model.context_length"} & plan.overrides.keys()
    tokens = plan.overrides["steps"] * plan.overrides["data.batch_size"] * 512
    assert tokens * count_flops_per_token(plan.config) == pytest.approx(SPEED * 0.3 * 600, rel=0.01)
    assert "that was asked for; it would see" in plan.reasons[1]
    short = plan_pretraining(2_000, Budget(10, SPEED, 24 * GB), shape=shape)
    assert short.overrides["model.context_length"] == short.config.context_length < 512


def test_ten_times_the_minutes_buy_more_until_the_text_is_used_up() -> None:
    def describe(text: int, minutes: float) -> str:
        plan, longer = (plan_pretraining(text, Budget(m, SPEED, 24 * GB)) for m in (minutes, 10 * minutes))
        if longer.config == plan.config and longer.tokens == plan.tokens:
            assert "would buy nothing: 10.0 epochs" in describe_longer(plan, longer, 10)
            return "nothing"
        words = describe_longer(plan, longer, 10)
        assert f"{longer.epochs:.1f} epochs" in words and f"{longer.tokens / plan.tokens:.1f} times" in words
        assert (f"{count_parameters(longer.config):,} parameters" in words) is (longer.size > plan.size)
        return "more"

    assert [describe(30_000_000, 1), describe(100_000, 1000)] == ["more", "nothing"]


@pytest.mark.parametrize(("text", "minutes"), [(100, 0.0), (100, -1.0), (100, math.inf), (0, 1.0)])
def test_no_time_or_no_text_is_refused(text: int, minutes: float) -> None:
    with pytest.raises(ConfigError, match=r"minutes|text"):
        plan_pretraining(text, Budget(minutes, SPEED))


# ---- fine-tuning


def test_adapters_have_as_many_parameters_as_one_counts_by_hand() -> None:
    """GPT-2, rank 8: q, k, v, o are (768, 768), the feed-forward (3072, 768) and back, in 12 layers."""
    wanted = 12 * 8 * (4 * (768 + 768) + 2 * (3072 + 768))
    assert count_adapter_parameters(preset("gpt2"), 8, ("blocks.*_proj",)) == wanted
    assert count_adapter_parameters(preset("gpt2"), 8, ("*.q_proj", "blocks.0.*.v_proj")) == 13 * 8 * 1536


def test_frozen_weights_need_no_gradients_no_moments_and_a_third_fewer_operations() -> None:
    full, adapted = (make_forecast(run(rank=rank), preset("gpt2"), 1e12) for rank in (0, 8))
    few = count_adapter_parameters(preset("gpt2"), 8, ("blocks.*_proj",))
    assert adapted.flops_per_token == pytest.approx(full.flops_per_token * 2 / 3)
    assert adapted.memory.gradients == 4 * few and adapted.memory.optimizer == 8 * few
    assert adapted.memory.weights == 4 * (124_439_808 + few)


@pytest.mark.parametrize("how", ["full", "adapters"])
@pytest.mark.parametrize("text", TEXTS)
def test_fine_tuning_keeps_to_the_time_and_says_why(how: str, text: int) -> None:
    config, minutes = preset("gpt2"), 30
    plan = plan_finetuning(text, Budget(minutes, SPEED), config, how)
    asked = plan.overrides
    tokens = asked["steps"] * asked["data.batch_size"] * asked["model.context_length"]
    row = asked["data.batch_size"] * asked["model.context_length"]
    assert tokens <= FINETUNE_EPOCHS * 0.9 * text / 4 + row
    passes = 3 if how == "full" else 2
    work = count_flops_per_token(config, asked["model.context_length"], passes) * (tokens - row)
    assert work <= SPEED * 0.3 * 60 * minutes
    assert asked["optimizer.lr"] == {"full": 2e-5, "adapters": 2e-4}[how]
    assert all("because" in reason for reason in plan.reasons)
    table = {"out": "a", "start": "smollm2", "data": {"path": "my.txt"}}
    Recipe.from_dict(override(table, [f"{key}={value}" for key, value in asked.items()]))


def test_conversations_are_counted_one_by_one() -> None:
    """40 of about 40 tokens each: three times 36 of them, in 54 steps of two."""
    plan = plan_finetuning(40 * 160, Budget(30, SPEED), preset("gpt2"), "adapters", records=40)
    assert (plan.overrides["steps"], plan.overrides["data.batch_size"]) == (54, 2)
    assert "54 steps of 2 conversations, 3.0 epochs" in plan.reasons[1]
    assert (
        plan_finetuning(40 * 160, Budget(0.1, SPEED), preset("gpt2"), "full", records=40).overrides["steps"]
        < 30
    )


@pytest.mark.timed
def test_the_peak_is_measured_once_and_quickly() -> None:
    begun = time.perf_counter()
    found = measure_peak("cpu")
    first, begun = time.perf_counter() - begun, time.perf_counter()
    assert measure_peak("cpu") == found > 1e8
    assert time.perf_counter() - begun < 0.01 and first < 2  # 0.3 s where nothing else runs
    assert get_device_memory() > GB // 10


def test_a_budget_never_states_a_share_above_the_peak() -> None:
    message = str(Budget(5, 1e9, utilization=48.0))
    assert "48 GFLOP/s" in message and "busy" in message and "%" not in message
    assert "60% of 1 GFLOP/s" in str(Budget(5, 1e9, utilization=0.6))
