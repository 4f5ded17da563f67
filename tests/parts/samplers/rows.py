"""A sampler on rows of scores: in torch, many at once, and on a tape."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.generation.samplers.chain import Chain, ChainState, process
from pellucid.generation.samplers.sampling_steps import append_sampler
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.samplers import Sampler, Table
from pellucid.reference.tape import Tape
from tests.reference.models import check_explained

V = 32
PROMPT, NEW = (3, 1, 4, 1, 5), (9, 2, 6, 9)

many = pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.torture)])


def random_rows(count: int, seed: int = 0) -> Tensor:
    """Logits of models of all degrees of certainty, some tokens without any chance, some with the same."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, V)) * random.choice([0.1, 1.0, 3.0, 10.0], size=(count, 1))
    rows[random.random((count, V)) < 0.03] = -np.inf
    rows[: count // 4] = rows[: count // 4].round()
    return torch.from_numpy(rows)


def make_state(*samplers: Any, new: Sequence[int] = NEW, vocab_size: int = V, stop: Any = ()) -> ChainState:
    """A text with these samplers; each is a part, or its settings."""
    sampling = Sampling(temperature=0.0, samplers=samplers)
    return ChainState(Chain.make(sampling, PROMPT, vocab_size, stop, seed=0), new=list(new))


def apply(sampler: Any, rows: Any, **more: Any) -> Tensor:
    """The rows [B V], or one row [V], after a sampler, in torch."""
    scores = torch.as_tensor(rows, dtype=torch.float64)
    table = scores if scores.ndim == 2 else scores[None]
    state = make_state(sampler, vocab_size=table.shape[-1], **more)
    return process(table, [state] * len(table)).reshape(scores.shape)


def append(sampler: Any, row: Any, **more: Any) -> Tape:
    """One row [V] after a sampler, on a tape: `after.scores`."""
    part, state = Sampler.read(sampler), make_state(vocab_size=len(row), **more)
    tape, inputs = Tape(), part.inputs(state)
    given = tape.constant("given", np.asarray(row)[None, None])
    if inputs is None:
        tape.alias("after.scores", given)
    else:
        append_sampler(tape, "after", part, given, inputs)
    return tape


def check_twin(sampler: Any, rows: Tensor, **more: Any) -> None:
    """Fails unless torch and the tape give the same, alone and together, and every cell explains itself."""
    after = apply(sampler, rows, **more)
    for i, (row, wanted) in enumerate(zip(rows, after, strict=True)):
        if i < 25:
            tape = append(sampler, row.numpy(), **more)
            agree(torch.from_numpy(tape["after.scores"][0, 0]), wanted)
            if i % 10 == 0:
                check_explained(tape)
        assert torch.equal(apply(sampler, row, **more), wanted)


def agree(got: Tensor, wanted: Tensor) -> None:
    """Fails unless the same tokens are removed and the others have the same scores."""
    assert torch.equal(got == -torch.inf, wanted == -torch.inf)
    kept = wanted > -torch.inf
    torch.testing.assert_close(got[kept], wanted[kept], rtol=1e-13, atol=1e-13)


def kept(scores: Tensor) -> list[int]:
    return (scores > -torch.inf).nonzero().flatten().tolist()


def log_softmax(scores: Any) -> Tensor:
    return torch.as_tensor(scores, dtype=torch.float64).log_softmax(-1)


def logits_of(*probabilities: float) -> Table:
    """A row whose softmax these are."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities))
