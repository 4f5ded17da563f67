"""Checks the compiled CPU decoder: decoded tokens, long prompts, and a random schedule of its slots.

It computes in float32, and by its definition rounds on the way: the input of a product with quantized weights
to 16-bit integers (`round_activations`), keys and values to the type of the cache, and queries of an int8
cache to 16-bit integers. The replay rounds the same recorded values in the same way; each value must then
follow from them within float32 rounding. Watched and unwatched runs must have the same logits, bit for bit,
and so must runs on one thread, on two, and on more than this machine may have (`list_threads`), two texts in
one call, and steps whose threads it chooses by itself. A call that is watched computes every token to the
end; the unwatched one stops early where the logits of the last token alone are asked for.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import PellucidError
from pellucid.base.names import describe
from pellucid.base.quantized import QuantizedWeight
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder, find_obstacle
from pellucid.engine.cpu.threads import PROBE_AFTER
from pellucid.engine.transformer import Transformer
from pellucid.explanation.engines import with_values
from pellucid.generation.decoders import Decoder
from pellucid.reference.op import Array
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.quantization import round_activations
from pellucid.reference.tape import Step, Tape
from pellucid.reference.training import forward, hold_weights
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.observed import RecordedTexts, find_computed, round_cached
from pellucid.verification.checks.engine.paths import (
    PathRun,
    UsedBudget,
    find_changed,
    in_type,
    judge_values,
    remove_logits,
)
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.run_report import RunReport
from pellucid.verification.verdict import Finding, Verdict

CHOICES = PROBE_AFTER + 8
"""Steps after which a decoder has chosen its threads, and tried the others again."""


def judge_together(subject: Subject, decoder: NativeDecoder) -> Finding | None:
    """Returns a finding where two texts that one call reads have other logits than each alone; both pass a
    window of the model, where it is small."""
    room = min(subject.length + 1, subject.config.context_length)
    texts = subject.make_ids(room, seed=1), subject.make_ids(max(room - 2, 1), seed=2)
    if decoder.config.mask.bidirectional_prefix > len(texts[1]):
        return None

    def make_rows() -> list[tuple[Cache, list[int]]]:
        return [(Cache(decoder.config, 1, room, dtype=decoder.cache_dtype), ids) for ids in texts]

    apart = torch.cat([decoder.forward_packed([row], range(len(row[1]))) for row in make_rows()])
    together = decoder.forward_packed(make_rows(), range(sum(map(len, texts))))
    if torch.equal(apart, together):
        return None
    at = int((apart != together).any(-1).nonzero()[0])
    message = f"two texts of {len(texts[0])} and {len(texts[1])} tokens in one call have other logits at "
    message += f"place {at} than each in a call of its own."
    return Finding(Verdict.BUG, "other bits", "logits[texts=2]", message)


def judge_chosen(decoder: NativeDecoder, choosing: NativeDecoder) -> Finding | None:
    """Returns a finding where a decoder that chooses its threads by itself has other logits, before it tries
    the slower number once more or then."""
    if decoder.config.mask.bidirectional_prefix > 1:
        return None

    def decode(one: NativeDecoder) -> torch.Tensor:
        return one.forward_packed([(Cache(one.config, 1, 1, dtype=one.cache_dtype), [0])], [0])

    wanted = decode(decoder)
    for step in range(CHOICES):
        if not torch.equal(decode(choosing), wanted):
            message = (
                f"the decoder that chooses its threads has other logits at step {step} than on one thread."
            )
            return Finding(Verdict.BUG, "other bits", "logits[threads=chosen]", message)
    return None


FLOATS = (
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.float16),
    (torch.float32, torch.int8),
)
"""Types of weights and cache in which a model of floats is decoded."""
QUANTIZED = (
    (torch.float32, torch.float16),
    (torch.float32, torch.int8),
    (torch.float32, torch.float32),
)
"""Types of all other numbers and of the cache, where the weights are quantized."""


MOST_THREADS = 64
"""Of the compiled decoder: `engine/cpu/pool.h`."""


class CachedDecoder(NativeDecoder):
    """The compiled decoder with a cache of a given type."""

    def __init__(self, module: Transformer, cache_dtype: torch.dtype, threads: int | None) -> None:
        super().__init__(module, threads=threads)
        self._cache_dtype = cache_dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        return self._cache_dtype


def judge_native(run: Callable[[Subject, Decoder, bool], PathRun]) -> Callable[[Subject], Finding]:
    """Returns the measurement of a way in which people run the compiled decoder, in every type: the first
    failure, else how much of the error budget is used."""

    def measure(subject: Subject) -> Finding:
        subject = subject.excerpt
        types = QUANTIZED if subject.quantized else FLOATS
        used = UsedBudget(subject)
        for dtype, cache_dtype in types[:2] if subject.is_quick and subject.is_large else types:
            module = subject.module(dtype)
            if (obstacle := find_obstacle(module)) is not None:
                return Finding(Verdict.SKIPPED, f"the compiled decoder does not have {obstacle}")
            try:
                decoders = [CachedDecoder(module, cache_dtype, threads) for threads in list_threads()]
            except PellucidError as error:
                return Finding(Verdict.SKIPPED, str(error))
            name = name_types(subject, dtype, cache_dtype)
            with torch.no_grad():
                watched = run(subject, decoders[0], True)
                plain = [run(subject, decoder, False) for decoder in decoders]
                wrong = _find_wrong_bits(module, watched, plain)
                if wrong is None and not watched.wrong_keys:
                    choosing = CachedDecoder(module, cache_dtype, None)
                    wrong = judge_together(subject, decoders[0]) or judge_chosen(decoders[0], choosing)
            if wrong is not None:
                return in_type(wrong, name)
            judge = partial(judge_decoded, subject, module, cache_dtype=cache_dtype)
            if (found := used.judge(name, watched, judge)) is not None:
                return found
        return used.summarize()

    return measure


def name_types(subject: Subject, dtype: torch.dtype, cache_dtype: torch.dtype) -> str:
    """Returns the types of the weights and of the cache: "quantized weights, int8 cache"."""
    weights = "quantized" if subject.quantized else dtype_name(dtype)
    return f"{weights} weights, {dtype_name(cache_dtype)} cache"


def list_threads() -> tuple[int, ...]:
    """Returns the numbers of threads on which the decoder is run: 1, 2, 3, and all of the machine, 4 at
    least: they share outputs where they cannot share tokens, which 3 can of other calls than 4."""
    every = min(max(os.cpu_count() or 1, torch.get_num_threads()), MOST_THREADS)
    return 1, 2, 3, max(every, 4)


def _find_wrong_bits(module: Transformer, watched: PathRun, plain: Sequence[PathRun]) -> Finding | None:
    """Returns the first difference between the watched run and those of each number of threads."""
    if (changed := find_changed(module, watched, plain[0])) is not None:
        return changed
    for threads, run in zip(list_threads(), plain, strict=True):
        if (changed := find_changed(module, plain[0], run)) is not None:
            message = f"the same calls give other logits on {threads} threads than on one."
            at = f"logits[threads={threads}]"
            return replace(changed, measured="threads change the logits", at=at, message=message)
    return None


def judge_decoded(
    subject: Subject,
    module: Transformer,
    texts: RecordedTexts,
    cache_dtype: torch.dtype,
    rounds_inputs: bool = True,
    past: dict[str, Array] | None = None,
) -> RunReport:
    """Judges what a decoder computed for some texts by the specification's pass over them; `rounds_inputs`
    says whether it rounds the inputs of products with quantized weights, `past` are the keys and values
    that its cache held before."""
    if past is None:
        program = subject.program_of(texts.ids)
    else:
        weights = {name: subject.weights[name] for name in module.config.parameters()}
        program = forward(module.config, weights, texts.ids, past=past)
    if "logits" not in texts.values:
        program = remove_logits(program)
    tape = hold_weights(with_values(program, module.weights()))
    held_weights = module.quantized_weights() if rounds_inputs else {}
    quantized = {name: held.to_weight() for name, held in held_weights.items()}
    tape = read_rounded(tape, texts.values, quantized, cache_dtype)
    return judge_values(subject.trace(tape, texts.ids[0]), texts.values, texts.absent)


def read_rounded(
    program: Tape,
    recorded: Mapping[str, RecordedValue],
    quantized: Mapping[str, QuantizedWeight],
    cache_dtype: torch.dtype,
) -> Tape:
    """Returns the program in which a product with a quantized weight reads X.rounded, the recorded input as
    16-bit integers hold it, and attention reads k_all and v_all, keys and values as the cache holds them;
    with an int8 cache it reads q.rounded too.

    With minimums a product is Σ x (s q) + Σ x m, two sums that may nearly cancel: it reads the input twice,
    and W.terms [out 2 in], the two parts of the weight.
    """
    tape = with_values(program, {})
    tape.steps, tape.roles, tape.about = dict(tape.steps), dict(tape.roles), dict(tape.about)
    seen = {program.resolve(name): value.value for name, value in recorded.items() if name in program}
    heads = [name.removesuffix(".z") for name in program.steps if name.endswith(".attn.z")]
    instead: dict[str, tuple[str, Callable[[Array], Array]]] = {
        program.resolve(find_computed(name, program)): (
            name if name not in program.steps else name.replace("_all", ".cached"),
            partial(_round_cached, dtype=cache_dtype),
        )
        for head in heads
        for name in (f"{head}.k_all", f"{head}.v_all")
    }
    if cache_dtype == torch.int8:
        instead |= {
            program.resolve(find_computed(f"{head}.q_all", program)): (f"{head}.q.rounded", _round_query)
            for head in heads
        }
    for name, step in program.steps.items():
        inputs = list(step.inputs)
        if step.op is einsum and inputs[1:2] and inputs[1] in quantized:
            inputs[:2] = _add_product(tape, inputs[0], inputs[1], quantized[inputs[1]], seen)
        is_read = not name.endswith(("_normed", "_rot")) and not re.search(r"\.[qk]_norm\.", name)
        for place, read in enumerate(inputs):
            if is_read and read in instead:
                held, to_held = instead[read]
                inputs[place] = _add_leaf(tape, held, read, to_held(seen[read]))
        tape.steps[name] = Step(name, step.op, tuple(inputs), step.attrs, step.phase)
    return tape


def _round_input(name: str, seen: Mapping[str, Array]) -> Array:
    """Returns the recorded input of a product as 16-bit integers hold it, in groups of 32 of its channels,
    which for z [B H T D] are h·D + d."""
    value = seen[name]
    if not name.endswith(".attn.z"):
        return np.asarray(round_activations.forward(value))
    rows = np.swapaxes(value, 1, 2)
    flat = round_activations.forward(rows.reshape(*rows.shape[:2], -1))
    return np.ascontiguousarray(np.swapaxes(np.asarray(flat).reshape(rows.shape), 1, 2))


def _round_cached(value: Array, dtype: torch.dtype) -> Array:
    """Returns recorded keys or values as a cache of this type holds them."""
    return np.asarray(round_cached(torch.from_numpy(np.array(value)), dtype).numpy())


def _round_query(value: Array) -> Array:
    """Returns recorded queries [B H T D] as 16-bit integers hold them, one scale for each: sums of their
    products with the integers of an int8 cache are exact."""
    return np.asarray(round_activations.forward(value, group=value.shape[-1]))


def _add_product(
    tape: Tape, x: str, name: str, weight: QuantizedWeight, seen: Mapping[str, Array]
) -> tuple[str, str]:
    """Adds what a product of an input with a quantized weight reads, and returns both names."""
    rounded = _round_input(x, seen)
    if weight.minimums is None:
        return _add_leaf(tape, f"{x}.rounded", x, rounded), name
    twice = np.concatenate((rounded, rounded), 1 if x.endswith(".attn.z") else -1)
    scaled = replace(weight, minimums=None).dequantize(np.float64)
    minimums = np.repeat(weight.minimums.astype(np.float64), weight.group, 1)[:, : weight.shape[1]]
    terms = np.concatenate((scaled, minimums), 1)
    return _add_leaf(tape, f"{x}.rounded.twice", x, twice), _add_leaf(tape, f"{name}.terms", name, terms)


def _add_leaf(tape: Tape, name: str, of: str, value: Array) -> str:
    """Adds a value that replaces another as an input, and returns its name."""
    tape.values[name], tape.roles[name] = value, "param"
    entry = describe(of, tape.about)
    if entry and not describe(name, tape.about):
        is_weight = name.endswith(".terms")
        symbol = entry.symbol if is_weight else f"{entry.symbol[:1]}\u0303{entry.symbol[1:]}"
        meaning = f"{entry.term}, {'in two parts' if is_weight else 'rounded to 16-bit integers'}"
        tape.about[name] = replace(entry, name=name, symbol=symbol, meaning=meaning, engines="reference")
    return name
