"""Noise or bug: healthy runs in any type are noise, and each planted bug is named where it stands."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pellucid.base.errors import AddressError, TapeError, UsageError
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.rounding import Bounded
from pellucid.verification.run_report import RunReport
from tests.agreement import transcriptions
from tests.explanation.runs_in_torch import Bugs, config, run, weights, widened
from tests.reference.models import CONFIGS, IDS, TARGETS
from tests.reference.models import weights as random_weights

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
HALVES = ["bfloat16", "float16"]
HIDDEN_BY_FUSION = ("scores", "masked", "pattern")


def replayed(
    family: str,
    type: str,
    bugs: Bugs | None = None,
    *,
    width: int = 32,
    length: int = 24,
    heads: int = 2,
    seed: int = 1,
    embedding: float = 1.0,
    hidden: Iterable[str] = (),
    layers: int = 2,
) -> RunReport:
    shape = config(family, width, length, heads, layers)
    w = weights(shape, TYPES[type], seed)
    w["embed.weight"] *= embedding
    random = torch.Generator().manual_seed(seed)
    ids, targets = (torch.randint(0, shape.vocab_size, (1, length), generator=random) for _ in range(2))
    recorded = run(shape, w, ids, targets, bugs)
    recorded = {name: value for name, value in recorded.items() if name.rpartition(".")[2] not in hidden}
    tape = forward(shape, widened(w), ids.numpy(), targets.numpy())
    return judge_run(tape, recorded)


@pytest.mark.rotating
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(("width", "length"), [(8, 9), (32, 24), (64, 130)])
def test_a_healthy_run_is_noise(family: str, type: str, width: int, length: int) -> None:
    for seed in range(3):
        done = replayed(family, type, width=width, length=length, seed=seed)
        assert done.verdict == "noise", str(done)
        if type in HALVES:
            assert max(value.units for value in done.values) < 4, str(done)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_healthy_run_whose_attention_is_hidden_is_noise(family: str, type: str) -> None:
    done = replayed(family, type, hidden=(*HIDDEN_BY_FUSION, "rstd", "normed", "lse"))
    assert done.verdict == "noise", str(done)


@pytest.mark.torture
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("width", "length", "seeds"), [(8, 16, 200), (64, 64, 60), (64, 300, 12), (576, 300, 2)]
)
def test_no_healthy_run_ever_exceeds_its_budget(
    family: str, type: str, width: int, length: int, seeds: int
) -> None:
    for seed in range(seeds):
        heads = 9 if width == 576 else 2
        done = replayed(family, type, width=width, length=length, heads=heads, seed=seed)
        assert done.verdict == "noise", f"seed {seed}: {done}"


def test_uniform_attention_over_equal_tokens_is_noise() -> None:
    """Equal terms round alike, again and again in the same direction."""
    shape = config("gpt2", 16, 300, 2)
    w = weights(shape, torch.float32, 0)
    for name in w:
        if "q_proj" in name or name == "positions.weight":
            w[name] *= 0
    ids = torch.full((1, 300), 3)
    done = judge_run(forward(shape, widened(w), ids.numpy(), ids.numpy()), run(shape, w, ids, ids))
    assert done.verdict == "noise", str(done)


# ---- planted bugs


@pytest.mark.parametrize("type", TYPES)
def test_positions_in_bfloat16_are_a_bug_at_the_rotated_queries(type: str) -> None:
    done = replayed("llama", type, {"positions": lambda p: p.to(torch.bfloat16)}, length=400)
    assert str(done).startswith("BUG at blocks.0.attn.q_rot\n"), str(done)
    assert {bug.name.rpartition(".")[2] for bug in done.bugs} == {"q_rot", "k_rot"}
    assert done.bugs[0].units > 200


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_forgotten_scale_is_a_bug_at_the_scores(family: str, type: str) -> None:
    done = replayed(family, type, {"scale": lambda _: 1.0})
    assert [bug.name for bug in done.bugs] == ["blocks.0.attn.scores", "blocks.1.attn.scores"]
    assert "S[h,t,s] = Σ_d Q" in str(done) and "/ 4" in str(done)


@pytest.mark.parametrize("type", TYPES)
def test_a_mask_one_off_is_a_bug_at_the_masked_scores(type: str) -> None:
    done = replayed("gpt2", type, {"diagonal": lambda _: 1})
    assert done.bugs[0].name == "blocks.0.attn.masked"
    assert "where its inputs give -∞: ∞ units of rounding" in str(done)


@pytest.mark.parametrize("type", TYPES)
def test_a_bug_in_a_fused_kernel_is_named_by_its_span(type: str) -> None:
    done = replayed("llama", type, {"diagonal": lambda _: 1}, hidden=HIDDEN_BY_FUSION)
    assert str(done).startswith("BUG at blocks.0.attn.q_rot … z\n"), str(done)
    assert [bug.name for bug in done.bugs] == ["blocks.0.attn.z", "blocks.1.attn.z"]


@pytest.mark.parametrize("type", TYPES)
def test_a_wrong_eps_is_a_bug_at_the_norm(type: str) -> None:
    done = replayed("llama", type, {"eps": lambda eps: 10 * eps}, embedding=0.01)
    assert done.bugs[0].name == "blocks.0.attn_norm.rstd", str(done)
    assert "1 / √(mean_c' X_E[t,c']² + 1e-05)" in str(done)


@pytest.mark.parametrize("type", TYPES)
def test_the_other_gelu_is_a_bug_although_bfloat16_cannot_hold_their_difference(type: str) -> None:
    done = replayed("gpt2", type, {"gelu": lambda _: "none"})
    assert [bug.name for bug in done.bugs] == ["blocks.0.mlp.act", "blocks.1.mlp.act"]
    assert "these are the numbers of gelu\n" in str(done)


@pytest.mark.parametrize("type", TYPES)
def test_one_wrong_weight_is_a_bug_at_the_value_that_reads_it_first(type: str) -> None:
    def flipped(w: Any) -> Any:
        wrong = w.clone()
        wrong.view(-1)[w.abs().argmax()] *= -1
        return wrong

    done = replayed("gpt2", type, {"blocks.1.attn.k_proj.weight": flipped})
    assert [bug.name for bug in done.bugs] == ["blocks.1.attn.k"]
    assert "all others follow from their own inputs" in str(done)


# ---- only what a library hands out: the stream between the blocks, at the width of a real model

STREAM = re.compile(r"positioned|embedded|.*resid_post|final_norm\.out|logits")
SWAPPED = [*range(64, 128), *range(64), *range(128, 576)]  # two heads of 64 channels
FIRST, THIRD = "embedded … blocks.0.resid_post", "blocks.1.resid_post … blocks.2.resid_post"


def streamed(
    type: str,
    bugs: Bugs | None = None,
    *,
    base: float | None = None,
    keep: re.Pattern[str] = STREAM,
    seed: int = 0,
) -> RunReport:
    shape = config("llama", 576, 24, 9, 4)
    turned = replace(shape, positions=replace(shape.positions, base=base)) if base else shape  # type: ignore[call-arg]
    w = weights(shape, TYPES[type], seed)
    ids = torch.randint(0, shape.vocab_size, (1, 24), generator=torch.Generator().manual_seed(seed))
    recorded = {name: x for name, x in run(turned, w, ids, ids, bugs).items() if keep.fullmatch(name)}
    return judge_run(forward(shape, widened(w), ids.numpy(), ids.numpy()), recorded)


@pytest.mark.rotating
@pytest.mark.parametrize("type", TYPES)
def test_a_healthy_stream_is_noise_and_so_are_logits_alone(type: str) -> None:
    for seed in range(2):
        done = streamed(type, seed=seed)
        assert done.verdict == "noise", str(done)
    done = streamed(type, keep=re.compile("logits"))
    assert done.verdict == "noise", str(done)


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({"base": 20_000.0}, FIRST),
        ({"bugs": {"scale": lambda scale: 2 * scale}}, FIRST),
        ({"bugs": {"eps": lambda _: 1e-3}}, FIRST),
        ({"bugs": {"blocks.2.attn.q_proj.weight": lambda w: w[SWAPPED]}}, THIRD),
    ],
    ids=["base", "scores", "eps", "heads"],
)  # fmt: skip
def test_a_bug_between_two_recorded_streams_is_named_at_its_block(fault: dict[str, Any], place: str) -> None:
    done = streamed("float32", **fault)
    assert done.verdict == "BUG" and done.bugs[0].place == place, str(done)
    assert (done.bugs[0].rerun_type, done.bugs[0].allowed) == ("float32", 20)
    assert len(done.bugs) == 1 or place == FIRST, str(done)


def test_another_curve_in_one_layer_is_named_at_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = iter((F.silu, F.silu, F.gelu, F.silu))
    monkeypatch.setattr(F, "silu", lambda x: next(curves)(x))
    done = streamed("float32")
    assert [bug.place for bug in done.bugs] == [THIRD], str(done)


def test_one_number_from_which_nothing_can_be_concluded_is_neither_noise_nor_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS, TARGETS)
    monkeypatch.setattr(Bounded, "terms", property(lambda self: np.full(self.shape, np.nan)))
    done = judge_run(tape, {"loss": (tape["loss"] * 1.01, "float32")})
    assert done.verdict == "cannot tell", str(done)
    assert "record more values" in str(done)


# ---- the rest of the contract


def test_a_run_judged_against_itself_is_noise_where_it_was_rounded() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    assert judge_run(tape, {name: RecordedValue(tape[name]) for name in tape.steps}).verdict == "equal"
    for name in tape.steps:
        tape.values[name] = tape.values[name].astype(np.float32).astype(np.float64)
    assert judge_run(tape, {name: (tape[name], "float32") for name in tape.steps}).verdict == "noise"


def test_a_run_in_float64_is_equal() -> None:
    for family in ("llama", "gpt2"):
        shape = config(family)
        w = weights(shape, torch.float64, 0)
        ids = torch.arange(9)[None]
        done = judge_run(forward(shape, widened(w), ids.numpy(), ids.numpy()), run(shape, w, ids, ids))
        assert done.verdict == "equal" and done, str(done)
        assert str(done).startswith("equal: ")


def _differentiated(family: str, dtype: torch.dtype) -> tuple[Tape, dict[str, RecordedValue]]:
    """A transcription with its gradients, and the specification's tape for the same weights."""
    shape = CONFIGS[family]
    w = {name: torch.tensor(x).to(dtype).requires_grad_() for name, x in random_weights(shape).items()}
    given = [torch.tensor(x) for x in (IDS, TARGETS)]
    sizes = {"layers": shape.n_layer, "heads": shape.n_head, "eps": shape.norm.eps}  # type: ignore[attr-defined]
    if family == "llama":
        sizes |= {"kv_heads": shape.n_kv_head, "base": shape.positions.base}  # type: ignore[attr-defined]
    kept = getattr(transcriptions, family)(w, *given, torch.ones_like(given[0]), **sizes)
    kept["loss"].backward()
    type = str(dtype).removeprefix("torch.")
    recorded = {name: RecordedValue(x.detach().double().numpy(), type) for name, x in kept.items()}
    for name, x in (kept | w).items():
        if x.grad is not None and not (name.endswith(".k_rot") or name == "loss"):
            recorded[f"d.{name}"] = RecordedValue(x.grad.double().numpy(), type)
    tape = forward(shape, widened(w), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    return tape, {
        name: x for name, x in recorded.items() if name in tape and tape[name].shape == x.value.shape
    }


@pytest.mark.parametrize("dtype", [*TYPES.values(), torch.float64])
def test_gradients_are_judged_alike(dtype: torch.dtype) -> None:
    tape, recorded = _differentiated("gpt2", dtype)
    done = judge_run(tape, recorded)
    assert done.verdict == ("equal" if dtype == torch.float64 else "noise"), str(done)
    assert sum(value.name.startswith("d.") for value in done.values) > 40
    name = "d.blocks.1.mlp.up_proj.weight"
    wrong = recorded | {name: recorded[name]._replace(value=2 * recorded[name].value)}
    assert [bug.name for bug in judge_run(tape, wrong).bugs] == [name]


def test_another_name_of_a_value_is_that_value() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    value = tape["blocks.1.resid_pre"]
    done = judge_run(
        tape, {"blocks.1.resid_pre": RecordedValue(value), "blocks.0.resid_post": RecordedValue(value + 1)}
    )
    assert [bug.name for bug in done.bugs] == ["blocks.0.resid_post"]


def test_what_was_given_differently_is_reported_as_given() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    theirs = {name: RecordedValue(value) for name, value in tape.values.items()}
    moved = tape["embed.weight"].copy()
    moved[2, 1] += 1
    done = judge_run(tape, theirs | {"embed.weight": RecordedValue(moved)})
    assert [value.address for value in done.different_weights] == ["embed.weight[v=2,c=1]"]
    assert done.bugs[0].name == "embedded"  # which still holds the rows of the other weights
    rest = judge_run(tape, {"embed.weight": RecordedValue(moved)})
    assert rest.verdict == "different" and not rest, str(rest)
    assert "given differently: embed.weight[v=2,c=1]" in str(rest)


def test_names_and_shapes_that_do_not_fit_are_refused() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    with pytest.raises(AddressError, match="logits"):
        judge_run(tape, {"logit": RecordedValue(np.zeros(3))})
    with pytest.raises(UsageError, match="has the shape"):
        judge_run(tape, {"logits": RecordedValue(np.zeros(3))})
    with pytest.raises(UsageError, match="float8"):
        judge_run(tape, {"logits": (tape["logits"], "float8")})


def test_a_name_that_only_our_other_engine_has_is_a_bug_at_that_name() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    recorded = {"blocks.0.attn.q_lost": RecordedValue(np.zeros(3)), "logits": RecordedValue(tape["logits"])}
    done = judge_run(tape, recorded, is_ours=True)
    assert [bug.name for bug in done.bugs] == ["blocks.0.attn.q_lost"]
    assert done.summarize().at == "blocks.0.attn.q_lost" and "the program has none" in str(done)
    assert done.to_data()["at"] == "blocks.0.attn.q_lost"
    wrong = recorded | {"logits": RecordedValue(2 * tape["logits"])}
    assert judge_run(tape, wrong, is_ours=True).bugs[0].name == "logits"
    assert judge_run(tape, recorded, is_ours=True, only="logits").verdict == "equal"


def test_recorded_angles_are_known_to_the_digits_of_float32() -> None:
    """A run may hold more digits of a table than it shows: at 300 radians float32 is off by 1e-5."""
    shape = config("llama", 32, 300)
    w = weights(shape, torch.float32, 0)
    ids = torch.randint(0, shape.vocab_size, (1, 300), generator=torch.Generator().manual_seed(0))
    tape = forward(shape, widened(w), ids.numpy(), ids.numpy())
    angles = tape["angles"].astype(np.float32).astype(float)
    recorded = {
        name: RecordedValue(tape[name], "float32") for name in tape.steps if name.endswith(("q", "q_rot"))
    }
    done = judge_run(tape, recorded | {"angles": RecordedValue(angles, "float32")})
    assert done.verdict == "noise", str(done)


def test_a_number_that_is_not_one_is_a_bug() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    broken = tape["logits"].copy()
    broken[0, 1, 2] = np.nan
    done = judge_run(
        tape, {"final_norm.out": RecordedValue(tape["final_norm.out"]), "logits": (broken, "bfloat16")}
    )
    assert done.bugs[0].address == "logits[b=0,t=1,v=2]"
    assert "nan" in str(done)


def test_only_some_values_are_judged_and_a_tolerance_excuses() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    theirs = {name: RecordedValue(tape[name] * 1.001, "float32") for name in ("logits", "probs")}
    assert [value.name for value in judge_run(tape, theirs, only="log*").values] == ["logits"]
    assert judge_run(tape, theirs).verdict == "BUG"
    assert judge_run(tape, theirs, tolerance=0.01).verdict == "equal"


def test_an_untrusted_step_of_another_shape_or_size_is_one_error() -> None:
    tape = forward(CONFIGS["llama"], random_weights(CONFIGS["llama"]), IDS)
    theirs = {"logits": RecordedValue(tape["logits"] * 2, "float32")}
    step = tape.steps["logits"]
    tape.steps["logits"] = replace(step, attrs={"spec": "btc,vc->tbv"})
    with pytest.raises(TapeError, match="has the shape"):
        judge_run(tape, theirs)
    tape.steps["logits"] = replace(step, attrs={"spec": "btc,(vn)c->btv", "n": 0})
    with pytest.raises(TapeError, match="cannot be computed"):
        judge_run(tape, theirs)
