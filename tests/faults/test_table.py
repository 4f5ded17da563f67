"""The limit that a check states is true: an error of twice that size is always seen."""

import pytest
import torch

from pellucid.verification.checks.check import DTYPES
from tests.faults import table
from tests.formats.gguf import random_models


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_error_of_twice_the_stated_limit_is_always_found(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MULTIPLES", (2.0,))
    monkeypatch.setattr(random_models, "ARCHITECTURES", {"llama": random_models.LLAMA})
    found, of = table.measure_power(dtype)[2.0]
    assert found == of > 30
