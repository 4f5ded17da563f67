"""Values of a run in many calls, of each text, laid out as the recording of one pass over that text.

People run a model in pieces: chunks of a prompt, single tokens, many texts at once, slots that are cropped,
copied and used again. Here every call is recorded on the path that it really takes, fused kernels included,
and each value is kept text by text, position by position. So one local replay judges every path: what a
position computed must follow from what its own text computed before it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from pellucid.base.dtypes import dtype_name
from pellucid.base.names import describe
from pellucid.engine.cache import Cache
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.generation.decoders import Decoder
from pellucid.generation.slots import CacheSlots, Feed
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.verification.foreign_values import RecordedValue

Position = dict[str, Tensor]
"""The values of one position of one text by name, without the axes of texts and positions."""
Text = list[Position]


class RecordedTexts(NamedTuple):
    """Texts of one length, ids [B T], and the values of one pass over them by name; `absent` says where
    [B T] logits were not asked for, and so neither they nor the final norm were computed."""

    ids: list[list[int]]
    values: dict[str, RecordedValue]
    absent: dict[str, Array]


def find_place(name: str) -> int | None:
    """Returns the axis of positions of a value that each position has by itself; None for the others, such as
    the scores, which belong to two positions, and the tables that all texts share."""
    entry = describe(name)
    axes = entry.axes if entry else ()
    if axes[:1] != ("b",) or name.endswith(("_all", ".head_out")):
        return None
    places = [axis for axis, letter in enumerate(axes) if letter in ("t", "s")]
    return places[0] if len(places) == 1 else None


def split_positions(values: dict[str, Tensor], row: int, columns: Sequence[int], width: int) -> Text:
    """Returns what each of these columns of one row of a recorded call of `width` columns computed.

    Values of fewer columns are omitted: those of wanted tokens alone (`add_wanted`), and inside attention
    those of the last of several segments.
    """
    text: Text = [{} for _ in columns]
    for name, value in values.items():
        if (axis := find_place(name)) is None or value.shape[axis] != width:
            continue
        for position, column in zip(text, columns, strict=True):
            position[name] = value[row].select(axis - 1, column)
    return text


def add_wanted(
    text: Text, values: dict[str, Tensor], logits: Tensor, wanted: Sequence[int], columns: range
) -> None:
    """Adds to the positions of these columns what was computed for the wanted ones of a call alone: the final
    norm, and the logits [N V] that the call returned."""
    for number, column in enumerate(wanted):
        if column not in columns:
            continue
        position = text[column - columns.start]
        for name, value in values.items():
            axis = None if name.startswith("blocks.") else find_place(name)
            if axis is not None and value.shape[axis] == len(wanted):
                position[name] = value[0].select(axis - 1, number)
        if "logits" in position and position["logits"].dtype == logits.dtype:
            position["logits"] = logits[number]


def join_texts(texts: Sequence[tuple[Sequence[int], Text]]) -> Iterator[RecordedTexts]:
    """Yields the texts, given with their ids, as one recording for each length: the values that every
    position of every text has, and those after the last block that only some were asked for."""
    by_length: dict[int, list[tuple[Sequence[int], Text]]] = defaultdict(list)
    for ids, text in texts:
        assert len(ids) == len(text), "every token of a text must have been read once"
        by_length[len(ids)].append((ids, text))
    for length, group in sorted(by_length.items()):
        if not length:
            continue
        positions = [position for _, text in group for position in text]
        names = set.intersection(*map(set, positions))
        fullest = max(positions, key=len)
        values, absent = dict[str, RecordedValue](), dict[str, Array]()
        for name, example in fullest.items():
            if name not in names:
                if name.startswith("blocks."):
                    continue
                absent[name] = np.array([[name not in position for position in text] for _, text in group])
            axis, missing = find_place(name), torch.zeros_like(example)
            assert axis is not None
            stacked = torch.stack(
                [torch.stack([one.get(name, missing) for one in text], axis - 1) for _, text in group]
            )
            kind = dtype_name(stacked.dtype)
            values[name] = RecordedValue(stacked.double().cpu().numpy(), kind)
        yield RecordedTexts([list(ids) for ids, _ in group], values, absent)


def find_wrong_keys(values: Mapping[str, Tensor], row: int, text: Text, dtype: torch.dtype) -> str:
    """Returns the first key or value that a cache of this type returned other than it was computed:
    blocks.0.attn.k_all[t=3]; "" where all are the same bits. `values` are those of the text's last call."""
    for name, cached in values.items():
        if not name.endswith((".k_all", ".v_all")):
            continue
        computed = find_computed(name, text[0])
        for t, position in enumerate(text):
            wanted = round_cached(position[computed], dtype)
            if not torch.equal(cached[row, :, t].nan_to_num(), wanted.nan_to_num()):
                return f"{name}[t={t}]"
    return ""


def find_computed(name: str, names: Mapping[str, Any] | Tape) -> str:
    """Returns the name under which the keys or values of `k_all` or `v_all` were computed."""
    own = name.removesuffix("_all")
    return next(key for key in (f"{own}_rot", f"{own}_normed", own) if key in names)


def round_cached(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns keys or values [… D] as a cache of this type returns them: rounded to the nearest; of int8,
    s · q with s = max|x| / 127 and q = round(x / s)."""
    if dtype != torch.int8:
        return x.to(dtype).to(x.dtype)
    single = x.float()
    scale = single.abs().amax(-1, keepdim=True) / 127
    integers = torch.round(single / scale.clamp_min(1e-30))
    return (integers.double() * scale.double()).to(x.dtype)


def find_overflow(values: Mapping[str, RecordedValue]) -> str | None:
    """Returns the first value with numbers beyond the largest of float16, None where there is none; masked
    scores are −∞."""
    for name, found in values.items():
        is_judged = found.type == "float16" and not name.endswith(".masked")
        if is_judged and np.isinf(found.value).any():
            return name
    return None


def cut_at_overflow(values: Mapping[str, RecordedValue]) -> dict[str, RecordedValue]:
    """Returns the values up to the first that overflows float16: nothing can be said of those after it."""
    names, overflow = [*values], find_overflow(values)
    return {name: values[name] for name in names[: names.index(overflow) + 1 if overflow else None]}


class Observer:
    """A model whose cached calls are recorded, text by text, for the slots of an engine."""

    def __init__(self, module: Decoder) -> None:
        self.module = self.observed = module
        self.texts: dict[int, Text] = defaultdict(list)
        self.wrong_keys = ""
        """The first key or value that the cache returned other than it was computed."""
        self.slots: ObservedSlots

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def forward_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        if isinstance(self.module, Transformer) or not any(cache.ring for cache, _ in rows):
            return self._record_packed(rows, wanted)
        tokens = [(cache, [id]) for cache, ids in rows for id in ids]  # as the compiled decoder reads a ring
        found = [self._record_packed([token], [0] * (at in wanted)) for at, token in enumerate(tokens)]
        return torch.cat(found)

    def _record_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        spans, at = list[tuple[int, int, int, int]](), 0
        read = dict[int, int]()
        for cache, ids in rows:
            slot = next(i for i, row in enumerate(self.slots.rows) if row is cache)
            start = int(cache.host_lengths[0]) + read.get(slot, 0)
            spans.append((slot, start, at, at + len(ids)))
            read[slot], at = read.get(slot, 0) + len(ids), at + len(ids)
        with record(fused=True, model=self.module) as seen:
            logits = self.module.forward_packed(rows, wanted)
        for slot, start, first, end in spans:
            text = split_positions(dict(seen), 0, range(first, end), at)
            add_wanted(text, dict(seen), logits, wanted, range(first, end))
            self.texts[slot][start:] = text
        self._compare_keys(seen, 0, spans[-1][0])  # attention is computed row by row: those of the last one
        return logits

    def forward_cached(self, ids: Tensor, cache: Cache, lengths: list[int]) -> Tensor:
        starts = cache.host_lengths.tolist()
        with record(fused=True, model=self.module) as seen:
            logits = self.module.forward_cached(ids, cache, lengths)
        for slot, (start, count) in enumerate(zip(starts, lengths, strict=True)):
            if count:
                self.texts[slot][start:] = split_positions(dict(seen), slot, range(count), ids.shape[1])
                self._compare_keys(seen, slot, slot)
        return logits

    def _compare_keys(self, seen: Mapping[str, Tensor], row: int, slot: int) -> None:
        if self.slots.cache.ring is None and not self.wrong_keys:
            self.wrong_keys = find_wrong_keys(seen, row, self.texts[slot], self.slots.dtype)


class ObservedSlots(CacheSlots):
    """The slots of an engine, which keep what every token of every slot computed."""

    def __init__(self, module: Decoder, count: int, capacity: int, dtype: torch.dtype, **more: Any) -> None:
        self.observer, self.dtype = Observer(module), dtype
        super().__init__(cast(Transformer, self.observer), count, capacity, dtype, **more)
        self.observer.slots = self

    def copy(self, source: int, target: int) -> None:
        super().copy(source, target)
        self.observer.texts[target] = list(self.observer.texts[source])

    def join_recorded(self, expected: Mapping[int, Sequence[int]]) -> Iterator[RecordedTexts]:
        """Yields what the slots computed for the ids that they are expected to hold."""
        texts = self.observer.texts
        return join_texts([(ids, texts[slot][: len(ids)]) for slot, ids in expected.items() if ids])


def make_feed(slots: CacheSlots, slot: int, tokens: Sequence[int], outputs: int) -> Feed:
    """Returns the feed that reads the tokens after those of a slot, in segments between the chunks' borders,
    with the logits of the last `outputs` tokens."""
    at = len(slots.tokens[slot])
    end, segments = at + len(tokens), list[tuple[int, ...]]()
    while at < end:
        border = min(slots.next_border(at), end)
        segments.append(tuple(tokens[at - end : border - end or None]))
        at = border
    return Feed(slot, tuple(segments), outputs)
