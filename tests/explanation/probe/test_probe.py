"""A text decides how a model's weights are read, or says what would decide."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ResourceError, TokenError
from pellucid.config import ModelConfig
from pellucid.explanation.probe import probe
from pellucid.explanation.probe.difference import BLOCK, count_errors, measure_difference
from pellucid.explanation.probe.probe import probe_model, read_prose
from pellucid.explanation.probe.probe_report import OtherReading, Probe, ReadingVerdict, lines
from pellucid.explanation.probe.readings import ModelReading
from pellucid.explanation.probe.text_reader import PIECE, ScoredWindow, TextReader, cut_rows, make_module
from pellucid.explanation.probe.token_evidence import find_other_tokenizer
from pellucid.formats.pretrained import Pretrained
from pellucid.verification.checks.files.weights import describe_probe
from pellucid.verification.verdict import Finding, Verdict
from tests.explanation.probe.trained import LETTERS, TEXT, read_as, train

ROPE = {"positions": {"kind": "rope", "base": 10_000.0}}
LINEAR = {"positions": {"kind": "rope_linear", "factor": 4.0}}
TWICE = {"positions": {"kind": "rope_linear", "factor": 2.0}}
WINDOW = {"mask": {"kind": "window", "size": 32}}
BIASES = {
    "positions": "learned", "norm": "layer_norm", "mlp": "gelu", "unembedding": "linear",
    "biases": ["qkv", "output", "mlp", "norm"],
}  # fmt: skip


def read(model: Pretrained, **choices: Any) -> Probe:
    return probe_model(read_as(model, **choices), TEXT)


# ---- what a text decides


@pytest.mark.parametrize(
    "choices", [ROPE, LINEAR, WINDOW, BIASES], ids=["rope", "linear", "window", "biases"]
)
def test_a_model_as_it_was_trained_is_right(choices: dict[str, Any]) -> None:
    done = probe_model(train(**choices), TEXT)
    assert done.fit is ReadingVerdict.RIGHT and not done.better, [*lines(done)]
    worse = {one.choice for one in done.alternatives if one.fit is ReadingVerdict.RIGHT}
    assert {"unembedding", "output projection"} <= worse
    wanted = {"rope": "RoPE base", "rope_linear": "RoPE scaling", "learned": "learned positions"}
    assert wanted[train(**choices).config.positions.kind] in worse
    assert ("window" in worse) == (choices is WINDOW) and ("biases" in worse) == (choices is BIASES)


@pytest.mark.parametrize(
    ("trained", "given", "label"),
    [
        (ROPE, {"positions": {"kind": "rope", "base": 100_000.0}}, "RoPE base: 10,000 for 100,000"),
        (ROPE, {"positions": {"kind": "rope", "base": 2_500.0}}, "RoPE base: 10,000 for 2,500"),
        (ROPE, {"positions": {"kind": "rope", "layout": "pairs"}}, "RoPE layout: halves for pairs"),
        (ROPE, LINEAR, "RoPE scaling: rope for rope_linear of 4"),
        (LINEAR, ROPE, "RoPE scaling: rope_linear of 4 for rope"),
        (LINEAR, TWICE, "RoPE scaling: rope_linear of 4 for rope_linear of 2"),
        (WINDOW, {"mask": {"kind": "window", "size": 16}}, "window: window of 32 for window of 16"),
        (WINDOW, {"mask": "causal"}, "window: window of 48 for causal"),
        (ROPE, {"norm": {"kind": "rms_norm", "eps": 1.0}}, "norm eps: 0.0"),
    ],
)  # fmt: skip
def test_a_wrong_line_of_the_config_is_named(
    trained: dict[str, Any], given: dict[str, Any], label: str
) -> None:
    done = read(train(**trained), **given)
    assert done.fit is ReadingVerdict.BETTER and done.better[0].label.startswith(label), [*lines(done)]
    assert any(f"another reading fits better: {label}" in line for line in " ".join(lines(done)).split("\n"))


def test_the_best_of_a_choice_is_looked_for_beyond_its_alternatives() -> None:
    """No alternative to a base of 30,000 is near 10,000; half of a quarter of ten times it is."""
    done = read(train(**ROPE), positions={"kind": "rope", "base": 640_000.0 / 16})
    assert done.better[0].label == "RoPE base: 10,000 for 40,000"


def test_a_dropped_bias_is_worse_than_the_biases() -> None:
    done = probe_model(train(**BIASES), TEXT)
    dropped = next(one for one in done.alternatives if one.choice == "biases")
    assert dropped.fit is ReadingVerdict.RIGHT and dropped.difference.mean > 0


# ---- what it cannot


def test_too_few_tokens_cannot_tell() -> None:
    done = probe_model(train(**ROPE), "a b c d e f")
    assert done.fit is ReadingVerdict.UNDECIDED and "worse" not in " ".join(lines(done))


def test_a_model_that_does_not_know_the_text_is_not_judged() -> None:
    rng = np.random.default_rng(0)
    random = " ".join(LETTERS[id] for id in rng.integers(0, 16, 600))
    done = probe_model(train(**ROPE), random)
    assert done.fit is ReadingVerdict.UNDECIDED and done.reason.startswith("it does not predict this text")
    assert "Give a text of its own kind with --text." in " ".join(lines(done))


def test_an_undecided_alternative_says_how_many_tokens_would_decide() -> None:
    done = probe_model(train(**ROPE), TEXT)
    undecided = {one.choice for one in done.undecided}
    assert "activation" in undecided
    one = next(one for one in done.undecided if one.choice == "activation")
    wanted = one.difference.tokens * (4 * one.difference.error / one.difference.mean) ** 2
    assert one.difference.needed == pytest.approx(wanted)
    assert any("tokens would decide" in line for line in lines(done))
    least, most = done.limits
    assert 0 < least <= most and "would have been seen" in " ".join(lines(done))


def test_a_little_better_is_believed_on_a_text_of_the_model_s_own_kind_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LayerNorm is 0.01 nats worse. Where even the better one is surer than it is right, nothing is said."""
    assert read(train(**ROPE), norm="layer_norm").better[0].label == "norm: rms_norm for layer_norm"
    monkeypatch.setattr(probe, "FITS", 0.5)
    assert not read(train(**ROPE), norm="layer_norm").better
    assert read(train(**ROPE), positions={"kind": "rope", "base": 100_000.0}).better  # much better


def test_what_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = train(**ROPE)
    with pytest.raises(TokenError, match="at least two tokens"):
        probe_model(model, "a")
    assert "no tokenizer" in probe.check_probe(replace(model, tokenizer=None))
    assert "later ones" in probe.check_probe(read_as(model, mask="none"))
    monkeypatch.setattr(probe, "_memory", lambda: 1000)
    with pytest.raises(ResourceError, match="smaller model"):
        probe.check_probe(model)


def test_as_data_every_number_is_finite_or_none() -> None:
    data = probe_model(train(**ROPE), "a b c d e f").to_data()
    assert data["tokens"] == 5 and data["verdict"] == "cannot tell"
    assert all(one["standard_error"] is None for one in data["alternatives"])


def test_our_text_is_of_more_than_two_thousand_words_and_signs() -> None:
    assert len(read_prose().split()) > 1_800


# ---- the standard error


def test_a_standard_error_is_of_blocks_because_neighbors_depend_on_each_other() -> None:
    rng = np.random.default_rng(0)
    blocks = np.repeat(rng.standard_normal(100), BLOCK)
    assert measure_difference(blocks).error == pytest.approx(0.1, rel=0.2)
    alone = rng.standard_normal(100 * BLOCK)
    assert measure_difference(alone).error == pytest.approx(BLOCK**-0.5 / 10, rel=0.2)


def test_an_alarm_wants_more_errors_of_few_blocks() -> None:
    """Student's t of 4 degrees of freedom is below −13 as rarely as a normal number is below −4."""
    assert count_errors(5) > 10 and count_errors(58) == 4
    rng = np.random.default_rng(0)
    some = [measure_difference(rng.standard_normal(5 * BLOCK)) for _ in range(2000)]
    assert not any(one.decides < 0 for one in some)
    assert measure_difference(rng.standard_normal(200) - 9).decides == 0  # four blocks
    assert measure_difference(rng.standard_normal(250) - 9).decides == -1
    assert measure_difference(np.zeros(1000)).decides == 0


# ---- reading


@pytest.mark.parametrize("context", [5, 16, 64, 4096])
@pytest.mark.parametrize("before", [(), (3,)])
def test_every_token_but_the_first_is_a_target_once(context: int, before: tuple[int, ...]) -> None:
    ids = list(range(100))
    rows = cut_rows(ids, context, before)
    assert [id for row in rows for id in row.ids[row.before + 1 :]] == ids[1:]
    assert max(len(row.ids) for row in rows) <= context + 1
    assert all(row.ids[: len(before)] == before for row in rows)


@pytest.mark.parametrize("before", [(), (3,)])
def test_a_text_is_read_piece_by_piece_as_in_one_pass(before: tuple[int, ...]) -> None:
    """A window longer than a piece is read with a cache, short ones in batches."""
    config = ModelConfig.from_dict(
        {"vocab_size": 16, "context_length": 700, "n_layer": 2, "n_head": 2, "d_model": 8}
    )
    torch.manual_seed(0)
    weights = {
        name: torch.randn(shape, dtype=torch.float64).numpy() for name, shape in config.parameters().items()
    }
    module = make_module(
        ModelReading(config, weights), {}, ModelReading(config, weights), "cpu", torch.float64
    )
    ids = np.random.default_rng(0).integers(0, 16, 900).tolist()
    for context in (700, 20):
        rows = cut_rows(ids, context, before)
        reader = TextReader(module, rows, with_entropy=True)
        first = reader.read_to(10)
        assert torch.is_grad_enabled()  # also while a text is half read
        assert 10 <= len(first.nll) <= PIECE
        done = reader.read_all()
        logs = [
            module(torch.tensor([row.ids[:-1]])).log_softmax(-1)[0, row.before :].detach() for row in rows
        ]
        targets = [torch.tensor(row.ids[row.before + 1 :]) for row in rows]
        wanted = torch.cat([-x.gather(-1, t[:, None])[:, 0] for x, t in zip(logs, targets, strict=True)])
        np.testing.assert_allclose(done.nll, wanted.numpy(), rtol=1e-10)
        entropies = torch.cat([-(x.exp() * x).sum(-1) for x in logs])
        np.testing.assert_allclose(done.entropy, entropies.numpy(), rtol=1e-10)
        places = [place for row in rows for place in range(len(row.ids) - row.before - 1)]
        assert done.position.tolist() == places


def test_a_reading_shares_the_weights_that_it_leaves_alone() -> None:
    model = train(**ROPE)
    given = ModelReading(model.config, dict(model.weights))
    module = make_module(given, {}, given, "cpu", torch.float32)
    held = dict(module.named_parameters())
    changed = given.change("", {"embed.weight": given.weight("embed.weight") + 1})
    assert changed is not None
    other = make_module(changed, held, given, "cpu", torch.float32)
    assert other.blocks[0].attn.q_proj.weight is module.blocks[0].attn.q_proj.weight  # type: ignore[union-attr]
    assert other.embed.weight is not module.embed.weight


# ---- tokens


def test_the_ids_of_another_tokenizer_mean_nothing_to_a_model_that_copies() -> None:
    """The stand-in predicts that what followed a token will follow it again."""
    module, ids = _Copier(), np.random.default_rng(1).integers(0, 1500, 900).tolist()
    base = TextReader(module, [ScoredWindow(tuple(ids))])  # type: ignore[arg-type]
    found = find_other_tokenizer(base, ids)
    assert found and found.fit is ReadingVerdict.BETTER and found.label == "tokenizer: of another model"
    done = Probe(9.0, 5.0, 900, (found,))
    assert "trained with the tokenizer of another model." in " ".join(lines(done))
    assert describe_probe(done).verdict is Verdict.BUG
    known = [id % 7 for id in ids]  # what the model knows: small ids are likely
    assert find_other_tokenizer(TextReader(module, [ScoredWindow(tuple(known))]), known) is None  # type: ignore[arg-type]


class _Copier:
    """Logits that are high for the token that followed the newest one before, and for the first seven ids."""

    config = ModelConfig.from_dict(
        {"vocab_size": 1500, "context_length": 2048, "n_layer": 1, "n_head": 1, "d_model": 2}
    )
    device, cache_dtype = "cpu", torch.float32
    seen: torch.Tensor

    def hidden_states(self, ids: torch.Tensor, cache: Any = None) -> torch.Tensor:
        if cache is not None:
            self.seen = torch.cat([self.seen, ids], 1) if cache.host_lengths[0] else ids
            return self._predict(self.seen)[:, -ids.shape[1] :]
        return self._predict(ids)

    def _predict(self, ids: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, 1500)
        logits[..., :7] = 4.0
        for row in range(len(ids)):
            followed = dict[int, int]()
            for at, id in enumerate(ids[row].tolist()):
                if at and id in followed:
                    logits[row, at, followed[id]] = 9.0
                if at:
                    followed[int(ids[row, at - 1])] = id
        return logits

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ((ReadingVerdict.RIGHT,), False),  # our own text says that it is worse
        ((ReadingVerdict.BETTER, ReadingVerdict.RIGHT), True),
        ((ReadingVerdict.UNDECIDED,), True),
        ((), True),
    ],
)
def test_a_reading_that_is_worse_on_our_own_text_is_not_called_better(
    own: tuple[ReadingVerdict, ...], kept: bool
) -> None:
    difference = measure_difference(np.full(500, -0.1))
    best = OtherReading("RoPE base", "÷ 10", ReadingVerdict.BETTER, difference, key="rope_theta")
    found = Probe(2.0, 2.0, 500, (best,))
    others = tuple(replace(best, fit=fit, note="÷ 10" if not i else "× 10") for i, fit in enumerate(own))
    done = probe._confirm(found, lambda: Probe(2.0, 2.0, 500, others))
    assert bool(done.better) is kept
    assert (
        kept or "fits this text better by 0.1000 nats a token, and English prose of ours worse" in done.reason
    )


def test_what_is_not_decided_is_named_below_the_check() -> None:
    finding = Finding(Verdict.RIGHT, "1", name="conventions", undecided=("norm eps", "RoPE base: ÷ 2"))
    assert finding.lines()[1].strip() == "cannot tell: norm eps, RoPE base: ÷ 2; a longer --text may decide"


def test_no_tokenizer_is_accused_by_a_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = train()
    monkeypatch.setattr(probe, "find_other_tokenizer", lambda *_: pytest.fail("too few tokens"))
    done = probe_model(model, " ".join(LETTERS[-3:]))
    assert not done.better and done.fit is ReadingVerdict.UNDECIDED
