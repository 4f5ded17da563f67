"""The constraint's mask: what its state does not allow is removed."""

import numpy as np
import torch

from pellucid.generation.samplers.chain import Chain, ChainState, process
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.samplers import Table
from tests.parts.samplers.rows import apply, kept


class Alternating:
    """Even tokens after odd ones and odd ones after even ones; the last token is token 5."""

    start = 0

    def compute_mask(self, state: int, remaining: int) -> Table:
        tokens = np.arange(6)
        return tokens % 2 == state if remaining > 1 else tokens == 5

    def advance(self, state: int, id: int) -> int:
        return 1 - id % 2


def test_the_state_says_which_tokens_are_kept() -> None:
    chain = Chain.make(Sampling(max_new_tokens=3), (), 6, (), 0, Alternating())
    assert [sampler.kind for sampler in chain.samplers] == ["constraint"]
    state, row = ChainState(chain), torch.zeros(1, 6)
    found = []
    for token in (4, 1, 5):
        found.append(kept(process(row, [state])[0]))
        assert found[-1] == kept(process(row, [state.fork()])[0])
        state.append(token)
    assert found == [[0, 2, 4], [1, 3, 5], [5]]


def test_without_a_constraint_every_token_is_kept() -> None:
    assert kept(apply("constraint", [0.0, 1.0])) == [0, 1]
