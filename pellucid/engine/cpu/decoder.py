"""A module's decoder in C: `forward_packed` of the same model, weights and caches, in one call.

    decoder = NativeDecoder(module)
    engine = Engine(decoder)  # where the engine takes a Transformer

It computes in float32, whatever the type of the weights and of the cache. Float matrices are read where the
module has them, so a module that is trained on stays the model that is decoded; what is held as a copy, such
as bfloat16 norms and packed integers, is read again where a text begins. What a token computes depends
neither on the other tokens of a call nor on the number of threads, bit for bit. Values are recorded under
their names as in any fused path; where a recording needs every value, or an edit changes one, the module runs
instead.
"""

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.base.errors import ResourceError, UsageError
from pellucid.config import ModelConfig
from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.cache import Cache
from pellucid.engine.cpu import structures as c
from pellucid.engine.cpu.calls import TokenCall, can_read
from pellucid.engine.cpu.library import NoLibrary, load_library
from pellucid.engine.cpu.obstacles import find_config_obstacle, find_module_obstacle
from pellucid.engine.cpu.packing import OFFSETS, are_packed, block_bytes, find_packed, pack
from pellucid.engine.cpu.threads import ThreadChoice
from pellucid.engine.layer_cache import Int8Cache, KeyValueCache, SlotCache
from pellucid.engine.norms import LayerNorm, RmsNorm
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.taps import begin_call, current_watcher, is_explicit, tap
from pellucid.engine.transformer import Transformer
from pellucid.parts.masks.window import Window

WRONG = {
    1: "the working memory of a step could not be had",
    2: "a call needs at least one token and one thread",
    3: "a token id is outside of the vocabulary",
    4: "a position is outside of the cache",
    5: "a token belongs to no row of the call",
    6: "the wanted tokens are not those of the call, in order",
}


def find_obstacle(module: Transformer) -> str | None:
    """Returns what keeps a model from the compiled decoder, None where nothing does."""
    if module.device.type != "cpu":
        return f"weights on {module.device}"
    return find_module_obstacle(module)


def is_decodable(config: ModelConfig) -> bool:
    """Returns whether the compiled decoder has every choice of a config, and this machine has the decoder."""
    try:
        return find_config_obstacle(config) is None and bool(load_library())
    except NoLibrary:
        return False


def hold_table(table: Tensor | None) -> Tensor | None:
    """Returns a table of positions as it is read, in float32."""
    return None if table is None else table.detach().to(torch.float32).contiguous()


def accelerate(
    module: Transformer, report: Callable[[str], None] = lambda text: None
) -> "Transformer | NativeDecoder":
    """Returns the module's compiled decoder, or the module where it has none: `report` gets the reason."""
    try:
        return NativeDecoder(module)
    except NotDecodable as error:
        report(f"decoding runs in PyTorch: the compiled decoder does not have {error.obstacle}.")
    except NoLibrary as error:
        report(str(error))
    return module


class NotDecodable(UsageError):
    """Raised where the compiled decoder does not have a choice of a model, the `obstacle`."""

    def __init__(self, message: str, obstacle: str) -> None:
        super().__init__(message)
        self.obstacle = obstacle


class NativeDecoder:
    """The compiled decoder of one module."""

    def __init__(self, module: Transformer, threads: int | None = None) -> None:
        if (obstacle := find_obstacle(module)) is not None:
            raise NotDecodable(
                f"the compiled decoder does not have {obstacle}: use the module itself.", obstacle
            )
        self.module, self.config, self.threads = module, module.config, threads
        self.library = load_library()
        self.kept: list[Any] = []
        """What the structures point to."""
        self._sources: list[tuple[Tensor, int]] = []
        """The tensors of the module that they describe, and where these lie."""
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        """The copies among what they point to, each with the tensor of the module that it is of."""
        self._lock = threading.RLock()
        self._choice = ThreadChoice()
        self._rows: weakref.WeakKeyDictionary[Cache, tuple[c.CCacheRow, Any]] = weakref.WeakKeyDictionary()
        self._decode_call: TokenCall | None = None
        """The last one that read a token of each of some texts, which the next token of these texts fills
        again."""
        self._dtype = module.dtype
        self.model = self._describe()
        self._address = ctypes.byref(self.model)

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        """The type of keys and values by default: of quantized weights float16, which rounds far less than
        they did."""
        return torch.float16 if self._is_quantized else self.dtype

    # ---- description

    def _describe(self) -> c.CModel:
        module, config = self.module, self.config
        self.kept, self._sources, self._copies = [], [], {}
        self._quantized = [part for part in module.modules() if isinstance(part, QuantizedTensor)]
        self._is_quantized = bool(self._quantized)
        pack(self._quantized, self.library)
        layers = (c.CLayer * config.n_layer)(*map(self._describe_layer, module.blocks))
        attend = module.get_submodule("blocks.0.attn.attend")
        assert isinstance(attend, SoftmaxAttention)
        cos_sin, factors, unembed = module.positions.cos_sin, module.position_bias.factors, module.unembed
        model = c.CModel(
            **{
                name: getattr(config, name)
                for name in ("n_layer", "d_model", "n_head", "n_kv_head", "d_head")
            },
            vocab_size=config.vocab_size,
            d_ff=config.d_ff,
            activation=c.ACTIVATIONS[config.mlp.activation],
            is_gated=config.mlp.form == "gated",
            n_pairs=0 if cos_sin is None else cos_sin.shape[-1],
            rotates_neighbors=module.positions.layout == "pairs",
            window=config.mask.size if isinstance(config.mask, Window) else 0,
            scale=attend.scale,
            slopes=self._pointer(factors),
            embed_norm=self._describe_norm(module.embed_norm),
            final_norm=self._describe_norm(module.final_norm),
            embed=self._describe_matrix(module.embed.weight, None),
            unembed=self._describe_matrix(
                module.embed.weight if unembed.weight is None else unembed.weight, unembed.bias
            ),
            layers=layers,
        )
        self.kept.append(layers)
        self._describe_positions(model)
        return model

    def _describe_positions(self, model: c.CModel) -> None:
        """Points to the tables of positions as they are now; older ones are given back."""
        positions = self.module.positions
        rows = getattr(positions, "weight", positions.rows)
        learned = getattr(positions, "weight", None)
        tables = [
            self._hold(table) if table is learned else hold_table(table)
            for table in (positions.cos_sin, rows)
        ]
        model.cos_sin, model.position_rows = (None if held is None else held.data_ptr() for held in tables)
        count = positions.covered if positions.has_tables else self.config.context_length
        model.n_positions = min(count, 2**31 - 1)
        self._position_tables = tables

    def _cover(self, count: int) -> None:
        """Makes the tables reach to the first `count` positions, as far as the context does."""
        with self._lock:
            if count > self.model.n_positions:
                self.module.cover(count)
                self._describe_positions(self.model)

    def _describe_layer(self, block: Any) -> c.CLayer:
        attn, mlp = block.attn, block.mlp
        linears = {"q": attn.q_proj, "k": attn.k_proj, "v": attn.v_proj, "o": attn.o_proj}
        linears |= {"up": mlp.up_proj, "down": mlp.down_proj}
        if self.config.mlp.form == "gated":
            linears["gate"] = mlp.gate_proj
        norms = {"attn_norm": block.attn_norm, "mlp_norm": block.mlp_norm}
        if attn.has_qk_norm:
            norms |= {"q_norm": attn.q_norm, "k_norm": attn.k_norm}
        return c.CLayer(
            **{name: self._describe_matrix(layer.weight, layer.bias) for name, layer in linears.items()},
            **{name: self._describe_norm(norm) for name, norm in norms.items()},
        )

    def _describe_norm(self, norm: Any) -> c.CNorm:
        if not isinstance(norm, LayerNorm | RmsNorm):
            return c.CNorm(kind=0)
        weight, bias = self._pointer(norm.weight), self._pointer(norm.bias)
        return c.CNorm(kind=c.NORMS[norm.kind], eps=norm.eps, weight=weight, bias=bias)

    def _describe_matrix(self, weight: Any, bias: Tensor | None) -> c.CMatrix:
        out, width = weight.shape
        common = {"out": out, "in_": width, "groups": -(-width // 32), "bias": self._pointer(bias)}
        if isinstance(weight, QuantizedTensor):
            packed = find_packed(weight)
            self.kept.append(packed)
            return c.CMatrix(
                kind=c.INT4 if weight.bits == 4 else c.INT8,
                offset=OFFSETS[weight.bits] if weight.minimums is None else 0,
                has_minimums=weight.minimums is not None,
                stride=block_bytes(weight),
                data=packed.data_ptr(),
                **common,
            )
        held = weight.detach()
        if held.stride(1) != 1:
            held = held.contiguous()
        self._watch(weight, held)
        kind = c.FLOAT32 if held.dtype == torch.float32 else c.BFLOAT16
        return c.CMatrix(kind=kind, stride=held.stride(0), data=held.data_ptr(), **common)

    def _pointer(self, value: Tensor | None) -> int | None:
        """Returns the address of a tensor in float32: its own, or that of a copy."""
        held = self._hold(value)
        return None if held is None else held.data_ptr()

    def _hold(self, value: Tensor | None) -> Tensor | None:
        """Returns a tensor as it is read, in float32: itself, or a copy."""
        if value is None:
            return None
        held = value.detach().to(torch.float32).contiguous()
        self._watch(value, held)
        return held

    def _watch(self, value: Tensor, held: Tensor) -> None:
        """Keeps what is read of a tensor of the module, and where that one lies."""
        self.kept.append(held)
        self._sources.append((value, value.data_ptr()))
        if held.data_ptr() != value.data_ptr():
            self._copies[id(value)] = held, value

    def refresh(self) -> None:
        """Reads again what the decoder has copied from the module, whose weights may have changed since; it
        is called where a text begins."""
        with self._lock, torch.no_grad():
            is_moved = any(value.data_ptr() != at for value, at in self._sources)
            if is_moved or not are_packed(self._quantized):
                self.model = self._describe()
                self._address = ctypes.byref(self.model)
            elif self._copies:
                held, values = zip(*self._copies.values(), strict=True)
                torch._foreach_copy_(list(held), [value.detach() for value in values])

    def _describe_row(self, cache: Cache) -> c.CCacheRow:
        """Returns where a text's keys and values lie; its buffers never move."""
        if cache not in self._rows:
            first = cache.layers[0]
            if cache.batch != 1 or not isinstance(first, KeyValueCache | Int8Cache):
                raise UsageError("the compiled decoder reads caches of one row with slots.")
            count = len(first.buffers)
            pointers = [
                (ctypes.c_void_p * len(cache.layers))(
                    *(layer.buffers[i].data_ptr() for layer in cache.layers)
                )
                for i in range(count)
            ]
            buffer = first.buffers[0]
            row = c.CCacheRow(
                *(ctypes.addressof(pointer) for pointer in pointers),
                *[None] * (4 - count),
                buffer.stride(1) // buffer.stride(2),
                cache.capacity,
                cache.ring.last if cache.ring else 0,
            )
            self._rows[cache] = row, pointers
        return self._rows[cache][0]

    # ---- running

    def forward_packed(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        """Appends tokens to several caches of one row each, and returns the logits [N V] of the tokens at the
        places `wanted` of the concatenated ids: `Transformer.forward_packed`."""
        if (call := self._find_decode(rows, wanted)) is not None:
            return self._decode(call, rows)
        caches = list(dict.fromkeys(cache for cache, _ in rows))
        if is_explicit(self.module) or not all(map(can_read, caches)):
            return self.module.forward_packed(rows, wanted)
        if len(caches) < len(rows) and any(cache.ring for cache in caches):
            return self._read_in_turn(rows, wanted)  # a ring takes the tokens of one segment at a time
        if any(len(some) > 1 or not cache.host_lengths[0] for cache, some in rows):
            self.refresh()
        watcher = begin_call(self.module)
        ids, positions, places = list[int](), list[int](), list[int]()
        for cache, some in rows:
            cache.reserve(len(some))
            start = int(cache.host_lengths[0])
            ids += some
            positions += range(start, start + len(some))
            places += [caches.index(cache)] * len(some)
            cache.advance(len(some))
        logits = torch.empty(len(wanted), self.config.vocab_size)
        recorded = None if watcher is None else CallValues(self.module, len(ids))
        try:
            tokens = np.array([ids, positions, places], np.int32)
        except OverflowError:
            raise UsageError(f"{WRONG[3]}.") from None
        described = [*map(self._describe_row, caches)]
        self._cover(max(positions, default=0) + 1)
        self._run(TokenCall(caches, described, tokens, np.array(wanted, np.int32)), logits, recorded)
        if recorded is not None:
            self._tap(recorded, rows, wanted)
            tap("logits", logits[None])
        return logits.to(self._dtype)

    def _find_decode(
        self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]
    ) -> TokenCall | None:
        """Returns the call that reads one token of each text with its logits; None where that is not what
        the call does, or where it is watched."""
        if len(wanted) != len(rows) or current_watcher(self.module) is not None:
            return None
        if any(len(some) != 1 for _, some in rows) or any(at != place for at, place in enumerate(wanted)):
            return None
        call = self._decode_call
        if call is None or not call.is_of(rows):
            caches = list(dict.fromkeys(cache for cache, _ in rows))
            if not caches or len(caches) < len(rows) or not all(map(can_read, caches)):
                return None
            self.refresh()
            call = TokenCall.make_decode(caches, [*map(self._describe_row, caches)])
            self._decode_call = call
        return call

    def _decode(self, call: TokenCall, rows: Sequence[tuple[Cache, Sequence[int]]]) -> Tensor:
        with self._lock:
            try:
                self._cover(call.fill(rows) + 1)
            except OverflowError:
                raise UsageError(f"{WRONG[3]}.") from None
            logits = torch.empty(len(rows), self.config.vocab_size)
            self._run(call, logits, None)
        return logits if self._dtype == torch.float32 else logits.to(self._dtype)

    def forward_cached(
        self, ids: Tensor, cache: Cache, lengths: list[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Runs `Transformer.forward_cached`: rows in one rectangle are the module's."""
        return self.module.forward_cached(ids, cache, lengths, last_only)

    def _read_in_turn(self, rows: Sequence[tuple[Cache, Sequence[int]]], wanted: Sequence[int]) -> Tensor:
        """Reads the segments of a text one after another."""
        found, at = [], 0
        for cache, some in rows:
            own = [place - at for place in wanted if at <= place < at + len(some)]
            found.append(self.forward_packed([(cache, some)], own))
            at += len(some)
        return torch.cat(found)

    def _run(self, call: TokenCall, logits: Tensor, recorded: "CallValues | None") -> None:
        threads = self.threads or torch.get_num_threads()
        is_measured = call.is_decode and self.threads is None
        with self._lock:
            if is_measured:
                threads = self._choice.choose(threads)
            call.prepare(threads, logits, None if recorded is None else recorded.pointers)
            began = time.perf_counter()
            wrong = self.library.pellucid_run(self._address, call.address)
            if is_measured:
                self._choice.add(threads, (time.perf_counter() - began) / call.n_rows)
        if wrong == 1:
            raise ResourceError(f"{WRONG[1]}: read fewer tokens at once.")
        if wrong:
            raise UsageError(f"{WRONG[wrong]}.")

    # ---- recording

    def _tap(
        self,
        recorded: "CallValues",
        rows: Sequence[tuple[Cache, Sequence[int]]],
        wanted: Sequence[int],
    ) -> None:
        """Offers the values of the call to the recordings, in the order of computation; the final norm is of
        the wanted tokens alone."""
        for name, value in recorded.values():
            tap(name, value[:, list(wanted)] if name == c.RECORDED[-1] else value)
        for index in range(self.config.n_layer):
            for cache, _ in rows:
                if cache.ring is None:
                    layer = cache.layers[index]
                    assert isinstance(layer, SlotCache)
                    keys, values = layer.read(int(cache.host_lengths[0]), torch.float32)
                    tap(f"blocks.{index}.attn.k_all", keys)
                    tap(f"blocks.{index}.attn.v_all", values)


class CallValues:
    """Memory for the named values of a call: for each name [layers tokens width]."""

    def __init__(self, module: Transformer, count: int) -> None:
        config = module.config
        heads, keys = config.n_head * config.d_head, config.n_kv_head * config.d_head
        rotates = module.positions.cos_sin is not None
        widths = dict.fromkeys(c.RECORDED, config.d_model)
        widths |= {f"attn.{name}": heads for name in ("q", "q_normed", "q_rot", "z")}
        widths |= {f"attn.{name}": keys for name in ("k", "v", "k_normed", "k_rot")}
        widths |= {f"mlp.{name}": config.d_ff for name in ("gate", "up", "act", "hidden")}
        absent = {
            "embed_norm.out": module.embed_norm is None,
            "attn.q_normed": config.qk_norm.is_none,
            "attn.k_normed": config.qk_norm.is_none,
            "attn.q_rot": not rotates,
            "attn.k_rot": not rotates,
            "mlp.gate": config.mlp.form != "gated",
        }
        self.config, self.count = config, count
        self.kept: dict[str, Tensor] = {}
        for place, name in enumerate(c.RECORDED):
            is_single = place < 3 or place == len(c.RECORDED) - 1
            if not absent.get(name):
                self.kept[name] = torch.zeros(1 if is_single else config.n_layer, count, widths[name])
        self.pointers = (ctypes.c_void_p * len(c.RECORDED))(
            *(self.kept[name].data_ptr() if name in self.kept else None for name in c.RECORDED)
        )

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """Yields each value by its name, in the axes of the glossary."""
        names = [*self.kept]
        single = {*c.RECORDED[:3], c.RECORDED[-1]}
        for name in (name for name in names if name in single and name != c.RECORDED[-1]):
            yield name, self.kept[name]
        for index in range(self.config.n_layer):
            for name in (name for name in names if name not in single):
                if name.endswith("_normed"):  # the norm's own name for its output
                    norm = name.removesuffix("ed") + ".out"
                    yield f"blocks.{index}.{norm}", self._shape(name, self.kept[name][index])
                yield f"blocks.{index}.{name}", self._shape(name, self.kept[name][index])
        yield c.RECORDED[-1], self.kept[c.RECORDED[-1]]

    def _shape(self, name: str, value: Tensor) -> Tensor:
        """[T (heads D)] → [1 heads T D], [T C] → [1 T C]."""
        if not name.startswith("attn."):
            return value[None]
        return value.view(self.count, -1, self.config.d_head).transpose(0, 1)[None]
