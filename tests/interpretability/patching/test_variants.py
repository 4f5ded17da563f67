"""A variant in a batch is the variant alone, however many rows a batch has."""

import numpy as np
import pytest

from pellucid.interpretability.patching import variants
from pellucid.interpretability.patching.sites import read_site
from pellucid.interpretability.patching.variants import Replacement, run_variants
from pellucid.interpretability.runner import Patch
from tests.interpretability.planted import PLANTED, REPEATED

CHANGES = [
    [],
    [Replacement(read_site("blocks.0.attn.head_out[h=0]"), 0.0)],
    [Replacement(read_site("blocks.1.resid_pre[t=2]"), np.arange(68.0))],
    [Replacement(read_site("embedded"), 1.0), Replacement(read_site("blocks.1.attn.z[h=0]"), 0.5)],
]


@pytest.mark.parametrize("limit", [1, 1500, 1 << 24])
def test_a_row_is_the_variant_alone(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MAX_NUMBERS", limit)
    for runner in PLANTED:
        calls: list[tuple[int, int]] = []
        found = run_variants(
            runner,
            REPEATED,
            CHANGES,
            "logits",
            lambda x: x,
            progress=lambda *done, calls=calls: calls.append(done),
        )
        assert calls[-1] == (4, 4)
        for row, changes in zip(found, CHANGES, strict=True):
            patches = [Patch(c.site.name, c.value, (0, *c.site.index)) for c in changes]
            alone = runner.run(REPEATED, ["logits"], patches)["logits"][0]
            assert np.allclose(row, alone, rtol=0, atol=1e-10)


def test_shared_patches_apply_to_every_row_before_its_own() -> None:
    shared = [Patch("blocks.1.attn.head_out", 0.0)]
    own = [[], [Replacement(read_site("blocks.1.attn.head_out[h=1]"), 1.0)]]
    for runner in PLANTED:
        found = run_variants(runner, REPEATED, own, "blocks.1.attn.head_out", lambda x: x, shared)
        assert not found[0].any()
        assert not found[1, 0].any()
        assert (found[1, 1] == 1).all()
