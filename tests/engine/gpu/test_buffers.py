"""The memory of a step is as large as its steps need."""

import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.engine.gpu.buffers import Buffers
from pellucid.engine.gpu.tiles import BUCKETS, MOST_SPLITS, count_splits
from tests.engine.gpu.models import SIZES


@pytest.mark.parametrize(("context_length", "splits"), [(40, 1), (1000, 4), (10**6, MOST_SPLITS)])
def test_parts_of_attention_hold_the_longest_text_of_the_context_and_no_more(
    context_length: int, splits: int
) -> None:
    config = ModelConfig.from_dict(SIZES | {"context_length": context_length})
    buffers = Buffers(config, BUCKETS[2], torch.device("cpu"), 1)
    assert max(map(count_splits, (1, context_length // 2, context_length))) == splits
    assert buffers.partial.shape == (BUCKETS[2] * config.n_head * splits, config.d_head)
    assert len(buffers.highest) == len(buffers.total) == len(buffers.partial)
