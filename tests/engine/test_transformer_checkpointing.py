"""Activation checkpointing trades time for memory and nothing else.

That loss and gradients are the same, for any choices, is in tests/choices/test_pairs.py.
"""

import torch

from pellucid.engine.taps import record
from tests.agreement.engines import CHOICES, IDS, TARGETS, fast, gradients, run


def test_checkpointing_keeps_fewer_values() -> None:
    """What autograd saves for the backward pass is counted, each memory once."""
    kept = []
    for checkpointing in (False, True):
        model, memory = fast(CHOICES["positions/rope"]), dict[int, int]()
        model.checkpointing = checkpointing

        def keep(value: torch.Tensor, memory: dict[int, int] = memory) -> torch.Tensor:
            memory[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            run(model, IDS, TARGETS)
        kept.append(sum(memory.values()) - sum(p.nbytes for p in model.parameters()))
    assert kept[1] < 0.6 * kept[0], kept


def test_a_recording_sees_a_checkpointed_model_once() -> None:
    model = fast(CHOICES["positions/rope"])
    model.checkpointing = True
    with record("blocks.0.attn.q", gradients=True) as seen:
        run(model, IDS, TARGETS).backward()
    assert len(seen.calls) == 1 and set(seen) == {"blocks.0.attn.q", "d.blocks.0.attn.q"}


def test_a_block_is_recomputed_as_it_was_computed_also_inside_a_recording() -> None:
    plain, model = fast(CHOICES["positions/rope"]), fast(CHOICES["positions/rope"])
    run(plain, IDS, TARGETS).backward()
    model.checkpointing = True
    value = run(model, IDS, TARGETS)
    with record() as seen:
        value.backward()
    assert not seen.calls
    wanted = gradients(plain)
    assert all((grad == wanted[name]).all() for name, grad in gradients(model).items())
