"""A site names a value or one of its heads or positions; what does not exist is refused."""

import numpy as np
import pytest

from pellucid.base.errors import AddressError, UsageError
from pellucid.interpretability import sites
from pellucid.interpretability.runner import Patch
from pellucid.interpretability.sites import (
    Replacement,
    Site,
    check_site,
    is_replaceable,
    list_outputs,
    list_sites,
    read_site,
    run_variants,
)
from tests.interpretability.planted import PLANTED, REPEATED


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("logits", (slice(None), slice(None))),
        ("blocks.1.attn_out[t=2]", (2, slice(None))),
        (" blocks.1.attn.head_out[ h = 1 ] ", (1, slice(None), slice(None))),
        ("blocks.1.attn.head_out[t=4,h=1]", (1, 4, slice(None))),
        ("blocks.1.attn.k[k=1,s=0]", (1, 0, slice(None))),
    ],
)
def test_a_site_is_an_index_without_the_batch(text: str, index: tuple[int | slice, ...]) -> None:
    assert read_site(text).index == index


def test_a_site_is_written_as_it_is_read() -> None:
    for text in ("logits", "blocks.1.attn_out[t=2]", "blocks.1.attn.head_out[t=4,h=1]"):
        assert str(read_site(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[h=1]",
        "logits[",
        "logits[h=1]",
        "blocks.0.attn.q[2]",
        "blocks.0.attn.q[h=-1]",
        "nothing",
        "probs",
        "embed.weight",
        "mask",
        "ids",
        "loss",
        "blocks.0.attn.q[h=1",
        "blocks.0.attn.q[h=]",
        "logits[t=1,]",
    ],
)
def test_what_is_not_a_part_of_a_value_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        read_site(text)


def test_a_value_is_divided_by_heads_else_by_positions_or_as_asked() -> None:
    head_out, resid = ("blocks.0.attn.head_out", (1, 2, 3, 4)), ("blocks.0.resid_pre", (1, 3, 4))
    assert [site.at for site in list_sites(*head_out)] == [(("h", 0),), (("h", 1),)]
    assert [site.at for site in list_sites(*resid)] == [(("t", 0),), (("t", 1),), (("t", 2),)]
    assert [site.at for site in list_sites(*head_out, "position")] == [(("t", i),) for i in range(3)]
    assert list_sites(*head_out, "whole") == [Site("blocks.0.attn.head_out")]
    assert [site.at for site in list_sites("blocks.0.attn.k", (1, 2, 3, 4), "position")][2] == (("s", 2),)
    with pytest.raises(UsageError):
        list_sites(*resid, "head")


def test_the_parts_of_a_value_are_the_whole() -> None:
    value = np.arange(24.0).reshape(1, 2, 3, 4)
    for part in ("head", "position", "whole"):
        copy = np.zeros_like(value)
        for site in list_sites("blocks.0.attn.head_out", value.shape, part):
            copy[(0, *site.index)] += value[(0, *site.index)]
        assert np.array_equal(copy, value)


def test_a_part_that_the_model_does_not_have_is_refused() -> None:
    runner = PLANTED[0]
    check_site(runner, read_site("blocks.1.attn.q[h=1]"), 5)
    for text in ("blocks.2.attn.q", "blocks.1.attn.q[h=2]", "blocks.1.attn.k[k=2]", "logits[t=5]"):
        with pytest.raises(AddressError):
            check_site(runner, read_site(text), 5)


def test_outputs_are_what_is_added_to_the_stream() -> None:
    assert list_outputs(PLANTED[0]) == ["blocks.0.attn.head_out", "blocks.1.attn.head_out"]
    assert all(map(is_replaceable, list_outputs(PLANTED[0])))


CHANGES = [
    [],
    [Replacement(read_site("blocks.0.attn.head_out[h=0]"), 0.0)],
    [Replacement(read_site("blocks.1.resid_pre[t=2]"), np.arange(68.0))],
    [Replacement(read_site("embedded"), 1.0), Replacement(read_site("blocks.1.attn.z[h=0]"), 0.5)],
]


@pytest.mark.parametrize("limit", [1, 1500, 1 << 24])
def test_a_row_is_the_variant_alone(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MAX_NUMBERS", limit)
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
