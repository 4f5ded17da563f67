"""GGUF's tensor types: a row is split into blocks, and a block holds small integers with their scale.

Each type is the layout of a block, byte for byte, and the function that dequantizes it. The fields have
llama.cpp's names: d the scale, m or dmin the shift, q the integers, s the scales of groups in a
block of 256. Scales are float16; the arithmetic is float32, in the order of the formulas.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, UsageError, unknown
from pellucid.base.quantized import QuantizedWeight
from pellucid.formats.pretrained import LazyWeights, Shape

Array = np.ndarray[Any, np.dtype[Any]]

CHUNK = 1 << 17
"""Numbers processed at a time: few enough to stay in the processor's cache."""


@dataclass(frozen=True)
class Type:
    """A tensor type. A block holds `size` numbers; `decode` maps blocks [N] to numbers [N size], perhaps with
    their groups as an axis, and `encode` maps numbers [N size] to blocks, for the types that are written.

    Where a `QuantizedWeight` can hold the blocks themselves, `bits` is the size of their integers and
    `integers` maps blocks to them, int8 [N size]."""

    code: int
    name: str
    size: int
    block: np.dtype[Any]
    decode: Callable[[Array], Array]
    encode: Callable[[Array], Array] | None = None
    bits: int = 0
    integers: Callable[[Array], Array] | None = None

    @property
    def number(self) -> np.dtype[Any]:
        """The dtype after dequantizing: float32, or float64 where that is stored."""
        return np.dtype(np.float64 if self.block == np.dtype("<f8") else np.float32)

    def bytes(self, count: int) -> int:
        return count // self.size * self.block.itemsize


def dequantize(type: Type, data: memoryview) -> Array:
    """Returns the numbers of whole blocks, flat."""
    blocks = np.frombuffer(data, type.block)
    numbers = np.empty((len(blocks), type.size), type.number)
    step = CHUNK // type.size
    with np.errstate(all="ignore"):  # a scale may be Inf or NaN; then so are its weights
        for at in range(0, len(blocks), step):
            numbers[at : at + step] = type.decode(blocks[at : at + step]).reshape(-1, type.size)
    return numbers.reshape(-1)


def read_blocks(type: Type, data: memoryview, rows: int) -> QuantizedWeight:
    """Returns the blocks of a matrix with this number of rows: nothing is rounded."""
    assert type.integers is not None, f"{type.name} is only dequantized"
    blocks = np.frombuffer(data, type.block)
    integers = np.empty((len(blocks), type.size), np.int8)
    step = CHUNK // type.size
    for at in range(0, len(blocks), step):
        integers[at : at + step] = type.integers(blocks[at : at + step])
    scales = blocks["d"].reshape(rows, -1).astype(np.float16)
    minimums = blocks["m"].reshape(rows, -1).astype(np.float16) if "m" in (type.block.names or ()) else None
    return QuantizedWeight(integers.reshape(rows, -1), scales, minimums, type.size, type.bits)


def find_type(weight: QuantizedWeight) -> Type | None:
    """Returns the type whose blocks hold a quantized weight exactly, None where there is none: a row must
    fill whole blocks, and a block must lie in one group."""
    width, has_minimums = weight.shape[1], weight.minimums is not None
    for type in TYPES:
        if type.bits == weight.bits and ("m" in (type.block.names or ())) == has_minimums:
            fits = width % type.size == 0 and (weight.group >= width or weight.group % type.size == 0)
            return type if fits else None
    return None


def write_blocks(type: Type, weight: QuantizedWeight, name: str) -> Iterator[bytes]:
    """Yields the blocks of a quantized weight, a chunk of rows at a time; a group of several blocks repeats
    its scale in each. `name` is the weight's, for messages."""
    blocks_of_row = weight.shape[1] // type.size
    repeats = -(-min(weight.group, weight.shape[1]) // type.size)
    if not all(np.isfinite(part).all() for key, part in weight.parts().items() if key != "integers"):
        raise FileError(f"the weight {name} holds NaN or Inf, so the model cannot be exported.")
    step = max(1, CHUNK // weight.shape[1])
    for at in range(0, weight.shape[0], step):
        some = weight.rows(at, at + step)
        blocks = np.empty((some.shape[0], blocks_of_row), type.block)
        blocks["d"] = np.repeat(some.scales, repeats, 1)[:, :blocks_of_row]
        if some.minimums is not None:
            blocks["m"] = np.repeat(some.minimums, repeats, 1)[:, :blocks_of_row]
        _fill_integers(type, blocks, some.integers.reshape(*blocks.shape, type.size))
        yield blocks.tobytes()


def _fill_integers(type: Type, blocks: Array, integers: Array) -> None:
    """Writes integers [… 32] into blocks […]: bytes, or nibbles of 4 bits with the fifth bits beside them;
    those without a minimum are stored from 0."""
    if type.bits == 8:
        blocks["q"] = integers
        return
    shift = 0 if "m" in (type.block.names or ()) else 2 ** (type.bits - 1)
    q = (integers + np.int8(shift)).view(np.uint8)
    low = q & np.uint8(15)
    blocks["q"] = low[..., :16] | (low[..., 16:] << 4)
    if type.bits == 5:
        blocks["high"] = np.packbits(q >> 4, axis=-1, bitorder="little")


def quantize(type: Type, numbers: Array, name: str) -> Iterator[bytes]:
    """Yields the blocks of some numbers, a chunk at a time; `name` is the tensor's, for messages."""
    assert type.encode is not None, f"{type.name} is only read"
    rows = numbers.reshape(-1, type.size)
    step = CHUNK // type.size
    for at in range(0, len(rows), step):
        piece = rows[at : at + step]
        with np.errstate(all="ignore"):
            blocks = type.encode(piece)
            kept = np.isfinite(type.decode(blocks)).all()
        if not kept:
            if not np.isfinite(piece).all():
                raise FileError(f"the weight {name} holds NaN or Inf, so the model cannot be exported.")
            raise FileError(
                f"the weight {name} has numbers beyond the range of {type.name}: the largest is "
                f"{np.abs(piece).max():g}. Use F32."
            )
        yield blocks.tobytes()


def _plain(blocks: Array) -> Array:
    """x, unchanged."""
    return blocks[:, None]


def _bf16(blocks: Array) -> Array:
    """The upper half of a float32."""
    return (blocks.astype(np.uint32) << 16).view(np.float32)[:, None]


def _fields(packed: Array, width: int) -> Array:
    """The bit fields of every byte, lowest first: bytes [… n] give numbers [… 8/width n]."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8(2**width - 1)


def _column(half: Array) -> Array:
    """Returns one float32 per block, with an axis to broadcast over the block's integers."""
    return half.astype(np.float32)[:, None]


def _scale(d: Array, q: Array) -> Array:
    """d q, with each block's own d."""
    return np.multiply(_column(d), q)


def _decode_integers(integers: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns the function of blocks that computes x = d q, or d q + m where a block has an m."""

    def decode(blocks: Array) -> Array:
        numbers = _scale(blocks["d"], integers(blocks))
        return numbers + _column(blocks["m"]) if "m" in (blocks.dtype.names or ()) else numbers

    return decode


def _nibbles(blocks: Array) -> Array:
    """32 integers of 4 bits: the low halves of 16 bytes, then the high halves."""
    return _fields(blocks["q"], 4).reshape(-1, 32).view(np.int8)


def _five_bits(blocks: Array) -> Array:
    """32 integers of 5 bits, the fifth stored separately: bit i of `high` belongs to integer i."""
    high: Array = np.unpackbits(blocks["high"], axis=-1, bitorder="little")
    integers: Array = _nibbles(blocks) | (high << 4).view(np.int8)
    return integers


def _signed_nibbles(blocks: Array) -> Array:
    """Integers of 4 bits that are stored as q + 8."""
    integers: Array = _nibbles(blocks) - np.int8(8)
    return integers


def _signed_five_bits(blocks: Array) -> Array:
    """Integers of 5 bits that are stored as q + 16."""
    integers: Array = _five_bits(blocks) - np.int8(16)
    return integers


def _bytes(blocks: Array) -> Array:
    """32 integers of 8 bits."""
    integers: Array = blocks["q"]
    return integers


def _to_q8_0(numbers: Array) -> Array:
    """d = max|x| / 127, q = x / d rounded, halves away from zero."""
    d = np.abs(numbers).max(axis=-1, keepdims=True) / np.float32(127)
    scaled = numbers * np.where(d == 0, np.float32(0), 1 / d)
    whole = np.trunc(scaled)
    blocks = np.empty(len(numbers), Q8_0)
    blocks["d"] = d[:, 0]
    blocks["q"] = whole + np.trunc(2 * (scaled - whole))
    return blocks


def _to_q4_0(numbers: Array) -> Array:
    """d = m / −8 with m the number of the largest magnitude, q = x / d + 8 rounded, at most 15."""
    widest = np.abs(numbers).argmax(axis=-1)[:, None]
    d = np.take_along_axis(numbers, widest, axis=-1) / np.float32(-8)
    scaled = numbers * np.where(d == 0, np.float32(0), 1 / d)
    q = np.minimum(np.trunc(scaled + np.float32(8.5)), 15).astype(np.uint8)
    blocks = np.empty(len(numbers), Q4_0)
    blocks["d"] = d[:, 0]
    blocks["q"] = q[:, :16] | (q[:, 16:] << 4)
    return blocks


def _q2_k(blocks: Array) -> Array:
    """16 groups of 16: x = d s q − dmin m, q of 2 bits, s and m the halves of a byte."""
    s, m = blocks["s"] & np.uint8(15), blocks["s"] >> np.uint8(4)
    q = _fields(blocks["q"].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    return _scale_groups(blocks["d"], s, q) - _shift(blocks["dmin"], m)


def _q3_k(blocks: Array) -> Array:
    """16 groups of 16: x = d (s − 32) (q − 4), q of 3 bits the third stored separately, s of 6, two stored
    separately."""
    low = _fields(blocks["q"].reshape(-1, 2, 32), 2)
    high = _fields(blocks["high"], 1).reshape(low.shape)
    q = (low | (high << np.uint8(2))).view(np.int8) - np.int8(4)
    s = _fields(blocks["s"][:, :8], 4).reshape(-1, 16)
    s = s | (_fields(blocks["s"][:, 8:], 2).reshape(-1, 16) << np.uint8(4))
    return _scale_groups(blocks["d"], s.view(np.int8) - np.int8(32), q.reshape(-1, 16, 16))


def _q4_k(blocks: Array) -> Array:
    """8 groups of 32: x = d s q − dmin m, q of 4 bits (block layout: `TYPES`)."""
    s, m = _six_bits(blocks["s"])
    return _scale_groups(blocks["d"], s, _nibble_groups(blocks)) - _shift(blocks["dmin"], m)


def _q5_k(blocks: Array) -> Array:
    """8 groups of 32: x = d s q − dmin m, q of 5 bits; bit g of `high` belongs to group g."""
    s, m = _six_bits(blocks["s"])
    q = _nibble_groups(blocks) | (_fields(blocks["high"], 1) << np.uint8(4))
    return _scale_groups(blocks["d"], s, q) - _shift(blocks["dmin"], m)


def _q6_k(blocks: Array) -> Array:
    """16 groups of 16: x = d s (q − 32), q of 6 bits the upper two stored separately, s signed."""
    low = _fields(blocks["q"].reshape(-1, 2, 64), 4).reshape(-1, 8, 32)
    high = _fields(blocks["high"].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    q = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    return _scale_groups(blocks["d"], blocks["s"], q.reshape(-1, 16, 16))


def _scale_groups(d: Array, s: Array, q: Array) -> Array:
    """d s q, where every group of a block has its own s."""
    return np.multiply(_scale(d, s)[:, :, None], q)


def _shift(dmin: Array, m: Array) -> Array:
    return _scale(dmin, m)[:, :, None]


def _nibble_groups(blocks: Array) -> Array:
    """32 bytes hold two groups of 32: their low halves, then their high halves."""
    return _fields(blocks["q"].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight shifts of 6 bits in 12 bytes: those of groups 0 to 3 are the low bits of bytes
    0 to 3 and 4 to 7, whose upper two bits belong to groups 4 to 7; bytes 8 to 11 hold the rest of those."""
    first, rest = packed[:, :8].reshape(-1, 2, 4), packed[:, None, 8:]
    last = _fields(rest[:, 0], 4) | ((first >> np.uint8(2)) & np.uint8(0b110000))
    both = np.concatenate([first & np.uint8(63), last], axis=-1)
    return both[:, 0], both[:, 1]


Q4_0 = np.dtype([("d", "<f2"), ("q", "u1", 16)])
Q4_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
Q5_0 = np.dtype([("d", "<f2"), ("high", "u1", 4), ("q", "u1", 16)])
Q5_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("high", "u1", 4), ("q", "u1", 16)])
Q8_0 = np.dtype([("d", "<f2"), ("q", "i1", 32)])


def _integers_type(
    code: int,
    name: str,
    bits: int,
    block: np.dtype[Any],
    integers: Callable[[Array], Array],
    encode: Callable[[Array], Array] | None = None,
) -> Type:
    """Returns a type of 32 integers with a scale: x = d q (+ m)."""
    return Type(code, name, 32, block, _decode_integers(integers), encode, bits, integers)


TYPES: tuple[Type, ...] = (
    Type(0, "F32", 1, np.dtype("<f4"), _plain, lambda numbers: numbers[:, 0].astype("<f4")),
    Type(1, "F16", 1, np.dtype("<f2"), _plain, lambda numbers: numbers[:, 0].astype("<f2")),
    Type(28, "F64", 1, np.dtype("<f8"), _plain),
    Type(30, "BF16", 1, np.dtype("<u2"), _bf16),
    _integers_type(2, "Q4_0", 4, Q4_0, _signed_nibbles, _to_q4_0),
    _integers_type(3, "Q4_1", 4, Q4_1, _nibbles),
    _integers_type(6, "Q5_0", 5, Q5_0, _signed_five_bits),
    _integers_type(7, "Q5_1", 5, Q5_1, _five_bits),
    _integers_type(8, "Q8_0", 8, Q8_0, _bytes, _to_q8_0),
    Type(10, "Q2_K", 256, np.dtype([("s", "u1", 16), ("q", "u1", 64), ("d", "<f2"), ("dmin", "<f2")]), _q2_k),
    Type(
        11, "Q3_K", 256, np.dtype([("high", "u1", 32), ("q", "u1", 64), ("s", "u1", 12), ("d", "<f2")]), _q3_k
    ),
    Type(
        12, "Q4_K", 256, np.dtype([("d", "<f2"), ("dmin", "<f2"), ("s", "u1", 12), ("q", "u1", 128)]), _q4_k
    ),
    Type(
        13,
        "Q5_K",
        256,
        np.dtype([("d", "<f2"), ("dmin", "<f2"), ("s", "u1", 12), ("high", "u1", 32), ("q", "u1", 128)]),
        _q5_k,
    ),
    Type(
        14,
        "Q6_K",
        256,
        np.dtype([("q", "u1", 128), ("high", "u1", 64), ("s", "i1", 16), ("d", "<f2")]),
        _q6_k,
    ),
)
BY_CODE = {type.code: type for type in TYPES}
BY_NAME = {type.name: type for type in TYPES}

NAMES = dict(
    enumerate(
        """F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K
        IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16
        Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 IQ4_NL_4_4 IQ4_NL_4_8 IQ4_NL_8_8 MXFP4 NVFP4 Q1_0""".split()  # noqa: SIM905
    )
)
"""llama.cpp's name of every type, by code; those that are not in TYPES are refused by name."""


# ---- the weights of a model as a file would hold them, without writing one

KINDS = tuple(type.name for type in TYPES if type.encode is not None)
"""The types to which weights can be rounded."""
UNCHANGED = ("positions.weight",)
"""Matrices that a file never quantizes: the table of learned positions."""


def check_kind(kind: str) -> str:
    """Returns the name of a type that weights can be rounded to, given in either case."""
    if kind.upper() not in KINDS:
        raise UsageError(unknown("the type to quantize to", kind, KINDS))
    return kind.upper()


def round_weights(shapes: Mapping[str, Shape], weights: Mapping[str, Array], kind: str) -> LazyWeights:
    """Returns the weights rounded to a type when they are read: matrices whose rows fill whole blocks; other
    matrices are F16; vectors and learned positions are unchanged, as in a file."""

    def read(name: str) -> Array:
        array = np.asarray(weights[name])
        if array.ndim == 1 or name in UNCHANGED:
            return array
        type = BY_NAME[kind if array.shape[-1] % BY_NAME[kind].size == 0 else "F16"]
        numbers = np.ascontiguousarray(array, dtype=np.float32)
        data = b"".join(quantize(type, numbers, name))
        return dequantize(type, memoryview(data)).reshape(array.shape)

    return LazyWeights.from_function(shapes, read)
