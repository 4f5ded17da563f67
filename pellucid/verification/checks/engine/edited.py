"""Checks that a decoder which has read a text reads the next one with the weights as they are then: edited in
place, as training does, or with an activation that `pellucid.edit` changes."""

import copy

import torch
from torch import Tensor

from pellucid.base.dtypes import dtype_name
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.taps import edit
from pellucid.engine.transformer import Transformer
from pellucid.generation.decoders import Decoder, decode_module
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.paths import NO_CACHE
from pellucid.verification.verdict import Finding, Verdict

COUNT = 6
"""Tokens that are read in one call, before a single one."""
PART, NARROW_PART = 0.01, 0.1
"""The fraction of the change that may be missing, where a decoder does not have the same bits from other
addresses; the second in bfloat16."""
ACTIVATION = "embedded"


def measure_edited(subject: Subject) -> Finding:
    """Edits every weight of the first blocks between two texts, then an activation."""
    subject = subject.excerpt
    count = max(int(min(subject.config.mask.bidirectional_prefix, 2**31)), COUNT)
    count = min(count, subject.config.context_length - 1)
    if count < max(1, subject.config.mask.bidirectional_prefix):
        return Finding(Verdict.SKIPPED, f"{NO_CACHE}, or no room after its prefix")
    ids, notes = subject.make_ids(count + 1), list[str]()
    dtypes = (torch.float32,) if subject.quantized else (torch.float32, torch.bfloat16)
    for dtype in dtypes:
        module = copy.deepcopy(subject.module(dtype))
        decoder = decode_module(module)
        with torch.no_grad():
            found = _find_ignored_edit(decoder, module, ids) or _find_kept_weight(decoder, module, ids)
        if isinstance(found, Finding):
            return found
        name = dtype_name(dtype)
        notes.append(f"{len(_list_parts(module))} weights in {name} by the {type(decoder).__name__}")
    return Finding(Verdict.EQUAL, f"an edit shows in the next text: {'; '.join(notes)}")


def read_text(decoder: Decoder, ids: list[int], cache_dtype: torch.dtype | None = None) -> Tensor:
    """Returns the logits [T V] of a new text: all tokens but the last in one call, then the last."""
    dtype = cache_dtype or decoder.cache_dtype
    cache = Cache(decoder.config, 1, len(ids), dtype=dtype, device=decoder.device)
    row = cache.row(0)
    return torch.cat(
        [decoder.forward_packed([(row, part)], range(len(part))).float() for part in (ids[:-1], ids[-1:])]
    )


def _find_ignored_edit(decoder: Decoder, module: Transformer, ids: list[int]) -> Finding | None:
    """Compares a text under `pellucid.edit` with the module's, and the one after it with the one before."""
    before = read_text(decoder, ids)
    with edit(ACTIVATION, lambda value: value.flip(-1), module):
        edited, wanted = read_text(decoder, ids), read_text(module, ids, decoder.cache_dtype)
    if not _agrees(decoder, before, edited, wanted):
        message = "the decoder reads a text under `pellucid.edit` as if nothing were edited."
        return Finding(Verdict.BUG, "an edit does not show", f"edit of {ACTIVATION}", message)
    if not _agrees(decoder, edited, read_text(decoder, ids), before):
        message = "the decoder still reads a text with the edit of an activation that has ended."
        return Finding(Verdict.BUG, "an edit does not end", f"edit of {ACTIVATION}", message)
    return None


def _find_kept_weight(decoder: Decoder, module: Transformer, ids: list[int]) -> Finding | None:
    """Edits all weights; where the next text does not show it, each alone, to name the one that was kept."""
    original = copy.deepcopy(module)
    if _shows(decoder, module, ids, [*_list_parts(module).values()]):
        return None
    for name in _list_parts(original):
        alone = copy.deepcopy(original)
        if not _shows(decode_module(alone), alone, ids, [_list_parts(alone)[name]]):
            message = f"{name} was edited in place, and the decoder still has its numbers from before."
            return Finding(Verdict.BUG, "an edited weight does not show", f"{name} before its edit", message)
    message = "weights were edited in place, and the decoder still has some of their numbers from before."
    return Finding(Verdict.BUG, "edited weights do not show", "weights before their edit", message)


def _shows(decoder: Decoder, module: Transformer, ids: list[int], parts: list[Tensor]) -> bool:
    before = read_text(decoder, ids)
    for part in parts:
        _change(part)
    return _agrees(
        decoder, before, read_text(decoder, ids), read_text(decode_module(copy.deepcopy(module)), ids)
    )


def _agrees(decoder: Decoder, before: Tensor, got: Tensor, wanted: Tensor) -> bool:
    """Returns whether logits are what they must be: the compiled decoder's bit for bit."""
    if not wanted.isfinite().all() or torch.equal(got, wanted):
        return True
    change = float((wanted - before).abs().max())
    allowed = (NARROW_PART if decoder.dtype == torch.bfloat16 else PART) * change
    return not isinstance(decoder, NativeDecoder) and float((got - wanted).abs().max()) <= allowed


def _list_parts(module: Transformer) -> dict[str, Tensor]:
    """Returns the parameters, and what quantized weights consist of, by name."""
    found: dict[str, Tensor] = dict(module.named_parameters())
    for name, held in module.named_modules():
        if isinstance(held, QuantizedTensor):
            parts = {"integers": held.integers, "scales": held.scales, "minimums": held.minimums}
            found |= {f"{name}.{part}": value for part, value in parts.items() if value is not None}
    return found


def _change(part: Tensor) -> None:
    """Changes each number of a weight in place, by a factor that grows along its last axis; integers change
    places."""
    if not part.is_floating_point():
        part.copy_(part.roll(1, 0))
        return
    ramp = torch.linspace(0.1, 0.5, part.shape[-1], dtype=torch.float32, device=part.device)
    size = float(part.float().abs().mean()) or 1e-2
    part.copy_(part.float() * (1 + ramp) + 0.1 * size * ramp)
