"""`pellucid explain RUN --at NAME@k[i,j]` as a person meets it."""

import json
import re
from pathlib import Path

import pytest

from pellucid.parts import kinds
from pellucid.training import optimizers
from pellucid.training.saving import checkpoint
from tests.cli.commands import Shell
from tests.training.small_run_folders import trained

WEIGHT = "blocks.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    trained(path, "train.dtype=float32", "train.ema=0.9")
    return path


def test_a_weight_is_explained_with_gradient_clip_moments_decay_and_rate(run: Path, shell: Shell) -> None:
    done = shell("explain", run, "--at", f"{WEIGHT}@6[3,7]", "--lines", "0", "--depth", "9")
    assert done.code == 0, done.err
    saved = checkpoint.read(run / "checkpoints" / "step-0000006")
    own = float(saved.get_trainable(WEIGHT)[3, 7])
    assert f"the run itself has {own:.9g} here, in float32" in done.out
    for words in (
        f"{WEIGHT}@6[out=3,in=7] = ",
        "(1 - 0.9^6)",  # the bias that is corrected
        "+ 0.1 · W_1@5[in,out]",  # decay
        "m@6[in,out] = 0.9 · m@5[in,out] + (1 - 0.9) · dW_1ᶜ[in,out]",
        "v@6[in,out] = 0.95 · v@5[in,out] + (1 - 0.95) · dW_1ᶜ[in,out]²",
        "dW_1ᶜ[in,out] = dW_1[in,out] clip",
        "clip = 0.1 / max(‖g‖, 0.1)",
        "(parameter=0 embed.weight)",
        "noise: each number of this update follows from the run's own before it",
        "replayed from the checkpoint of step 4; loss, rate and gradient norm of step 6 are those of the log",
        "the checkpoint of step 6 holds the same bits",
    ):
        assert words in done.out, words
    assert done.err == ""


@pytest.mark.parametrize("kind", kinds("optimizers"))
def test_every_optimizer_explains_its_update(kind: str, tmp_path: Path, shell: Shell) -> None:
    trained(tmp_path / "a", f"optimizer.kind={kind}", "steps=3")
    done = shell("explain", tmp_path / "a", "--at", f"{WEIGHT}@3[3,7]", "--depth", "2")
    assert done.code == 0, done.err
    assert "W_1@3[in,out] = W_1@2[in,out] - " in done.out
    assert re.search(r"^(equal|noise): each number of this update", done.out, re.MULTILINE)


def test_one_value_in_full_for_programs(run: Path, shell: Shell) -> None:
    done = shell("explain", run, "--at", f"{WEIGHT}@6[3,7]", "--json")
    message = json.loads(done.out)
    own = float(checkpoint.read(run / "checkpoints" / "step-0000006").get_trainable(WEIGHT)[3, 7])
    assert message["run"]["own"] == own and message["run"]["checkpoint_has_the_same_bits"] is True
    assert message["value"] == pytest.approx(own, rel=2.0**-22) and message["value"] != own
    assert message["run"]["distance"] == abs(message["value"] - own)
    assert (message["run"]["verdict"], message["run"]["replayed_from"], message["run"]["remarks"]) == (
        "noise",
        4,
        [],
    )


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (f"{WEIGHT}@5", "[out=10 in=8]   W_1@5, up-projection weight after update 5"),
        ("embed.weight.ema@5", "EMA of token embedding weight after update 5"),
        (f"{WEIGHT}.m@5[0,0]", "= 0.9 · "),
        (f"d.{WEIGHT}@5[0,0]", "input, gradient of"),
        (f"{WEIGHT}@5[out=3]", f"{WEIGHT}@5[out=3] [in=8]"),
        (f"d.{WEIGHT}@5[:,7]", f"d.{WEIGHT}@5[in=7] [out=10]"),
        ("grad_norm@5", "gradient norm in update 5"),
        ("clip@5", "clipping factor in update 5"),
        ("embed.weight@0[1,1]", "no update computed it: the run began with it"),
    ],
)
def test_whatever_has_a_name(at: str, words: str, run: Path, shell: Shell) -> None:
    done = shell("explain", run, "--at", at)
    assert done.code == 0 and words in done.out, done.out + done.err


def test_without_an_address_the_names_are_listed(run: Path, shell: Shell) -> None:
    done = shell("explain", run)
    assert done.code == 0
    assert "6 of 6 updates, adamw" in done.out and "from which a replay begins: 4, 6" in done.out
    assert "final_norm.weight" in done.out
    message = json.loads(shell("explain", run, "--json").out)
    assert message["checkpoints"] == [4, 6] and message["parameters"][WEIGHT] == [10, 8]


def test_with_a_prompt_it_is_the_newest_model_that_is_explained(run: Path, shell: Shell) -> None:
    done = shell("explain", run, "ab", "--at", "probs[t=1,v=2]")
    assert done.code == 0 and done.out == shell("explain", run / "model", "ab", "--at", "probs[t=1,v=2]").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--at", f"{WEIGHT}@7[0,0]"), "has made 6 of 6 updates, so there is nothing at 7: ask for @6"),
        (("--at", WEIGHT), "does not say after which update: of a run write NAME@k[i,j], for example embed"),
        (("--at", "blocks.1.mlp.up_prj.weight@3"), WEIGHT),
        (("--at", f"{WEIGHT}@3[10,0]"), "has no out=10: out has 0…9"),
        (("--at", "embed.weight@3[v=Zyx]"), "no token Zyx on the axis v"),
        (("--at", f"{WEIGHT}.w@3[1,0]"), f"has no value '{WEIGHT}.w@3'. Did you mean"),
        (("--at", "embed.weight@1", "--update", "sgd"), "needs a prompt"),
    ],
)
def test_a_usage_error_is_reported_before_any_work(
    arguments: tuple[str, ...], words: str, run: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pellucid.verification.runs.rebuild.PastRun.rebuild"
    monkeypatch.setattr(name, lambda *_: pytest.fail("it was replayed"))
    done = shell("explain", run, *arguments)
    assert done.code == 2 and words in done.err and done.out == "", done.err


def test_a_weight_that_did_not_learn_says_so(tmp_path: Path, shell: Shell) -> None:
    trained(tmp_path / "a", "steps=2", "train.only=unembed.*", "model.unembedding=linear")
    done = shell("explain", tmp_path / "a", "--at", f"{WEIGHT}@2[0,0]")
    assert done.code == 0 and f"{WEIGHT} did not learn: train.only = ['unembed.*']" in done.out
    asked = shell("explain", tmp_path / "a", "--at", f"{WEIGHT}.m@2[0,0]")
    assert asked.code == 2 and "did not learn (train.only = ['unembed.*']), so there is no" in asked.err


def test_a_replay_that_is_not_the_run_to_the_bit_says_what_differs(tmp_path: Path, shell: Shell) -> None:
    trained(tmp_path / "a", "steps=2")
    log = tmp_path / "a" / "log.jsonl"
    log.write_text(re.sub(r'("kind": "step", "step": 2, "loss": )[\d.]+', r"\g<1>7.5", log.read_text()))
    done = shell("explain", tmp_path / "a", "--at", "embed.weight@2[0,0]")
    assert "replayed from the beginning of the run, and not to the bit:" in done.out
    assert "and 7.5 in the log" in done.out


def test_a_skipped_update_is_reported_with_its_reason(tmp_path: Path, shell: Shell) -> None:
    """A rate that throws the weights beyond what float32 can square."""
    trained(
        tmp_path / "a", "train.dtype=float32", "optimizer.kind=sgd", "optimizer.lr=1e25", "train.clip=0",
        "train.on_nonfinite=stop", "schedule.warmup=0",
    )  # fmt: skip
    for at in ("embed.weight@2[0,0]", "d.embed.weight@2", "grad_norm@2"):
        done = shell("explain", tmp_path / "a", "--at", at)
        assert done.code == 0, done.err
        assert "update 2 was skipped, and no weight was changed" in done.out
        assert re.search(r"was not finite: .* computed from ", done.out)
        assert "the log skips this step as well" in done.out


def test_a_run_without_a_log_is_not_said_to_agree_with_it(tmp_path: Path, shell: Shell) -> None:
    trained(tmp_path / "a", "steps=2")
    (tmp_path / "a" / "log.jsonl").unlink()
    done = shell("explain", tmp_path / "a", "--at", "embed.weight@2[0,0]")
    assert done.code == 0 and "the log has nothing of this step" in done.out


def test_an_update_that_does_not_follow_from_the_run_s_numbers_is_a_bug_and_exits_with_one(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = optimizers.scale_learning_rate
    monkeypatch.setattr(
        optimizers, "scale_learning_rate", lambda optimizer, factor: right(optimizer, factor / 2)
    )
    trained(tmp_path / "a", "steps=3")
    done = shell("explain", tmp_path / "a", "--at", f"{WEIGHT}@3[3,7]")
    assert done.code == 1 and f"BUG at {WEIGHT}@3" in done.out
    data = shell("explain", tmp_path / "a", "--at", f"{WEIGHT}@3[3,7]", "--json")
    assert data.code == 1 and json.loads(data.out)["run"]["verdict"] == "BUG"
