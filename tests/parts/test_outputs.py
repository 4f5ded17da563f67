"""The output projection by hand."""

import numpy as np
import pytest

from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights


def test_linear_output_is_the_sum_of_what_each_head_writes() -> None:
    config = CONFIGS["llama"]
    tape = forward(config, weights(config), [[1, 2, 0]])
    matrix, d = tape["blocks.0.attn.o_proj.weight"], config.d_head
    heads = [z @ matrix[:, h * d : (h + 1) * d].T for h, z in enumerate(tape["blocks.0.attn.z"][0])]
    assert np.sum(heads, axis=0) == pytest.approx(tape["blocks.0.attn_out"][0], abs=1e-12)
