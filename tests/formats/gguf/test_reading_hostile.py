"""Files from strangers: whatever a GGUF file holds, the answer is a model or one FileError, soon."""

import random
import re
import struct
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.formats import gguf
from tests.formats.gguf.random_models import ARCHITECTURES, GPT2, LLAMA, LLAMA3, YARN, Raw, model, text, u32

HUGE = 2**40
TENSOR = (b"t", (32,), 0, 0)
SEEDS = ARCHITECTURES | {
    "llama, yarn": LLAMA | {"positions": YARN | {"attention_factor": 1.7}},
    "llama, Llama 3": LLAMA | {"positions": LLAMA3},
}


def whole(path: Path, name: str = "llama") -> bytes:
    came_from = name.partition(",")[0]
    gguf.write(path, model(SEEDS[name], came_from, chat_template="{{ x }}"), "Q8_0")
    return path.read_bytes()


def is_model(path: Path, most: int = 1 << 25, seconds: float = 2.0) -> bool:
    """Whether the file is read, weights and all; anything but a model or a FileError is raised."""
    tracemalloc.start()
    answer = is_model_soon(path, seconds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most + 8 * path.stat().st_size
    return answer


def is_model_soon(path: Path, seconds: float = 2.0) -> bool:
    start, complaint = time.process_time(), ""  # a busy machine is not the file's fault
    try:
        read = gguf.read(path)
        for name in read.weights:
            assert read.weights[name].dtype in (np.float32, np.float64)
        if read.tokenizer:
            read.tokenizer.decode(read.tokenizer.encode("the cat 12"))
    except FileError as error:
        complaint = str(error)
    assert time.process_time() - start < seconds
    assert not complaint or (str(path) in complaint and len(complaint) < 2000)
    return not complaint


def array(inner: int, count: int, rest: bytes = b"") -> bytes:
    return struct.pack("<IQ", inner, count) + rest


def nested(depth: int) -> bytes:
    return b"".join(array(9, 1) for _ in range(depth)) + array(4, 0)


def alignment(value: int, type: int = 4) -> Raw:
    raw = Raw(tensors=[TENSOR], data=bytes(4096))
    return raw.fact("general.alignment", type, u32(value) if type == 4 else text(b"32"))


Make = Callable[[], bytes]


def tensors(*rows: tuple[bytes, tuple[int, ...], int, int]) -> Make:
    return lambda: Raw(tensors=list(rows), data=bytes(256)).bytes()


def fact(type: int, value: bytes, more: int = 0, name: str = "a") -> Make:
    return lambda: Raw().fact(name, type, value).bytes() + bytes(more)


def counts(tensors: int, metadata: int, rest: bytes) -> Make:
    """A header that claims these numbers, and what follows it."""
    return lambda: Raw(counts=(tensors, metadata)).bytes()[:24] + rest


CORPUS: dict[str, tuple[str, Make]] = {
    "nothing": ("it is too short for GGUF", lambda: b""),
    "four bytes": ("it is too short for GGUF", lambda: b"GGUF"),
    "another format": ("it does not begin with GGUF", lambda: b"PK\x03\x04" + bytes(100)),
    "the older magic": ("it does not begin with GGUF", lambda: Raw(magic=b"GGML").bytes()),
    "version 0": ("it is GGUF version 0", lambda: Raw(version=0).bytes()),
    "version 1": ("it is GGUF version 1", lambda: Raw(version=1).bytes()),
    "version 4": ("it is GGUF version 4", lambda: Raw(version=4).bytes()),
    "version 2^31": ("it is GGUF version 2147483648", lambda: Raw(version=2**31).bytes()),
    "big-endian": ("it is big-endian GGUF", lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64)),
    "no metadata": ("general.architecture", lambda: Raw().bytes()),
    "2^40 metadata": ("number of metadata entries: 1,099,511,627,776", counts(0, HUGE, bytes(999))),
    "2^40 tensors": ("number of tensors: 1,099,511,627,776", counts(HUGE, 0, bytes(999))),
    "2^64 - 1 metadata": (
        "number of metadata entries: 18,446,744,073,709,551,615",
        counts(0, 2**64 - 1, bytes(999)),
    ),
    "2^64 - 1 tensors": ("number of tensors: 18,446,744,073,709,551,615", counts(2**64 - 1, 0, bytes(999))),
    "more metadata than there are": (
        "metadata entry 1",
        lambda: Raw(counts=(0, 2)).fact("a", 4, u32(1)).bytes(),
    ),
    "more tensors than there are": (
        "number of tensors: 2",
        lambda: Raw(counts=(2, 0), tensors=[TENSOR]).bytes(),
    ),
    "a million empty metadata": (
        "1,000,000 metadata",
        lambda: Raw(counts=(0, 10**6)).bytes() + bytes(13 * 10**6),
    ),
    "a key of 2^40 bytes": (
        "metadata entry 0: 1,099,511,627,776",
        counts(0, 1, struct.pack("<Q", HUGE) + bytes(99)),
    ),
    "a key of 2^63 bytes": (
        "metadata entry 0: 9,223,372,036,854,775,808",
        counts(0, 1, struct.pack("<Q", 2**63) + bytes(99)),
    ),
    "a key of 2^64 - 1 bytes": ("number of metadata entries: 1", counts(0, 1, struct.pack("<Q", 2**64 - 1))),
    "a key of 70,000 bytes": (
        "metadata entry 0 is 70,000 bytes",
        lambda: Raw().fact("k" * 70_000, 4, u32(1)).bytes(),
    ),
    "a key that is not UTF-8": (
        "metadata entry 0 is not UTF-8",
        lambda: Raw(metadata=[(b"\xff\xfe", 4, u32(1))]).bytes(),
    ),
    "a fact twice": ("key a comes twice", lambda: Raw().fact("a", 4, u32(1)).fact("a", 4, u32(1)).bytes()),
    "a fact of type 13": ("a has the type 13", fact(13, bytes(8))),
    "a fact of type 2^32 - 1": ("a has the type 4294967295", fact(2**32 - 1, bytes(8))),
    "a truth of 2": ("a must be 0 or 1", fact(7, b"\x02")),
    "a text of 2^40 bytes": ("a: 1,099,511,627,776", fact(8, struct.pack("<Q", HUGE), 99)),
    "a text that is not UTF-8": ("a is not UTF-8", fact(8, text(b"\xc3\x28"))),
    "a text with half a surrogate pair": ("a is not UTF-8", fact(8, text(b"\xed\xa0\x80"))),
    "an array of 2^40 numbers": ("a: 1,099,511,627,776", fact(9, array(4, HUGE), 99)),
    "an array of 2^62 numbers": ("a: 4,611,686,018,427,387,904", fact(9, array(10, 2**62), 99)),
    "an array of 2^40 texts": ("a: 1,099,511,627,776", fact(9, array(8, HUGE), 99)),
    "an array of 2^61 texts": ("a: 2,305,843,009,213,693,952", fact(9, array(8, 2**61), 99)),
    "an array of 3 million texts": (
        "2,097,152 strings",
        lambda: Raw().fact("a", 9, array(8, 3 << 20, bytes(24 << 20))).bytes(),
    ),
    "an array whose last text is cut": ("it ends inside a", fact(9, array(8, 2, text(b"x") + u32(9) * 2))),
    "an array of a text that is not UTF-8": ("a is not UTF-8", fact(9, array(8, 1, text(b"\xff")))),
    "an array of type 99": ("a is an array of the type 99", fact(9, array(99, 1, bytes(64)))),
    "an array in an array": ("a is an array of arrays", fact(9, nested(1))),
    "10,000 nested arrays": ("a is an array of arrays", lambda: Raw().fact("a", 9, nested(10_000)).bytes()),
    "alignment 0": ("general.alignment is 0", lambda: alignment(0).bytes()),
    "alignment 3": ("general.alignment is 3", lambda: alignment(3).bytes()),
    "alignment 4": ("general.alignment is 4", lambda: alignment(4).bytes()),
    "alignment 48": ("general.alignment is 48", lambda: alignment(48).bytes()),
    "alignment 2^31": ("general.alignment is 2147483648", lambda: alignment(2**31).bytes()),
    "an alignment that is a text": ("general.alignment is '32'", lambda: alignment(0, 8).bytes()),
    "a tensor without axes": ("the tensor t has 0 axes", tensors((b"t", (), 0, 0))),
    "a tensor of 5 axes": ("the tensor t has 5 axes", tensors((b"t", (1,) * 5, 0, 0))),
    "a tensor of 2^32 - 1 axes": (
        "the tensor t has 4294967295 axes",
        counts(1, 0, text(b"t") + u32(2**32 - 1) + bytes(99)),
    ),
    "an axis of length 0": ("the tensor t has an axis of length 0", tensors((b"t", (0, 4), 0, 0))),
    "axes whose product is 2^64": (
        "the tensor t has the impossible shape (4294967296, 4294967296)",
        tensors((b"t", (2**32, 2**32), 0, 0)),
    ),
    "axes whose product wraps to 32": (
        "the tensor t has the impossible shape (32, 1, 2, 9223372036854775808)",
        tensors((b"t", (2**63, 2, 1, 32), 0, 0)),
    ),
    "an axis of 2^64 - 1": (
        "the tensor t has the impossible shape (18446744073709551615,)",
        tensors((b"t", (2**64 - 1,), 0, 0)),
    ),
    "a tensor larger than the file": ("the tensor t ends", tensors((b"t", (10**6,), 0, 0))),
    "an offset past the end": (
        "the tensor t ends",
        lambda: Raw(tensors=[(b"t", (8,), 0, 1 << 20)], data=bytes(256)).bytes(),
    ),
    "an offset of 2^64 - 32": ("the tensor t ends", tensors((b"t", (8,), 0, 2**64 - 32))),
    "an offset that is not aligned": ("the tensor t begins at 33", tensors((b"t", (8,), 0, 33))),
    "tensors that overlap": (
        "the tensors t and u overlap",
        tensors((b"t", (32,), 0, 0), (b"u", (32,), 0, 32)),
    ),
    "tensors in the same place": ("the tensors t and u overlap", tensors(TENSOR, (b"u", (32,), 0, 0))),
    "a tensor twice": ("the tensor t comes twice", tensors(TENSOR, (b"t", (8,), 0, 128))),
    "a tensor's name of 65 bytes": (
        "the name of tensor 0 is 65 bytes long",
        tensors((b"t" * 65, (8,), 0, 0)),
    ),
    "a tensor's name that is not UTF-8": (
        "the name of tensor 0 is not UTF-8",
        tensors((b"\x80", (8,), 0, 0)),
    ),
    "rows that fill no block": (
        "rows of 33 numbers do not fill blocks of Q8_0, in the tensor t",
        tensors((b"t", (33,), 8, 0)),
    ),
    "a removed type": ("the tensor t is stored as Q4_2", tensors((b"t", (32,), 4, 0))),
    "a type of 999": ("the tensor t has the unknown type 999", tensors((b"t", (32,), 999, 0))),
    "an architecture that is a number": (
        "general.architecture",
        fact(4, u32(1), name="general.architecture"),
    ),
    "an architecture that is a path": ("'../x'", fact(8, text(b"../x"), name="general.architecture")),
    "an architecture that is a module": (
        "'__init__'",
        fact(8, text(b"__init__"), name="general.architecture"),
    ),
    "an architecture of 10,000 letters": (
        "general.architecture",
        fact(8, text(b"a" * 10_000), name="general.architecture"),
    ),
    "a llama that is only a name": (
        "llama.embedding_length is missing",
        fact(8, text(b"llama"), name="general.architecture"),
    ),
}
"""What is said of each, and how it is made: it may be wrong in a second way, and that is not the reason."""


@pytest.mark.parametrize("name", CORPUS)
def test_a_file_that_is_wrong_in_one_way_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    complaint, make = CORPUS[name]
    path.write_bytes(make())
    assert not is_model(path)
    with pytest.raises(FileError, match=re.escape(complaint)):
        gguf.read(path)


def test_the_files_of_the_corpus_are_wrong_only_where_they_say_so(tmp_path: Path) -> None:
    """The same pieces put together rightly get as far as the architecture."""
    raw = Raw(tensors=[TENSOR, (b"u", (32,), 0, 128)], data=bytes(256))
    raw.fact("a", 9, array(8, 1, text(b"x"))).fact("general.alignment", 4, u32(64))
    raw.alignment = 64
    (tmp_path / "m.gguf").write_bytes(raw.bytes())
    with pytest.raises(FileError, match=r"general.architecture is missing"):
        gguf.read(tmp_path / "m.gguf")


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileError):
            gguf.read(path)


def test_a_file_that_is_a_zip_as_well_is_read_as_what_it_says_first(tmp_path: Path) -> None:
    data, packed = whole(tmp_path / "m.gguf"), BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.py", "print(1)")
    (tmp_path / "m.gguf").write_bytes(data + packed.getvalue())
    assert is_model(tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_bytes(packed.getvalue() + data)
    assert not is_model(tmp_path / "m.gguf")


def test_a_vector_in_blocks_is_read_too(tmp_path: Path) -> None:
    """llama.cpp keeps vectors in F32; a file that does not is still a file."""
    path = tmp_path / "m.gguf"
    gguf.write(path, model(GPT2), "F32")
    data = bytearray(path.read_bytes())
    for name in (b"blk.0.attn_qkv.bias", b"output_norm.weight"):
        at = data.index(name) + len(name) + 4 + 8
        data[at : at + 4] = u32(8)
    path.write_bytes(data)
    read = gguf.read(path)
    assert read.provenance.types["blocks.0.attn.k_proj.bias"] == "Q8_0"
    start = data.index(np.asarray(model(GPT2).weights["blocks.0.attn.q_proj.bias"], "<f4").tobytes())
    blocks = np.frombuffer(bytes(data[start : start + 6 * 34]), [("d", "<f2"), ("q", "i1", 32)])
    wanted = (blocks["d"].astype(np.float32)[:, None] * blocks["q"]).reshape(3, 64)
    for part, name in enumerate("qkv"):
        assert np.array_equal(read.weights[f"blocks.0.attn.{name}_proj.bias"], wanted[part], equal_nan=True)


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.torture)])
def test_a_file_cut_anywhere_is_refused(step: int, tmp_path: Path) -> None:
    """At the end of the tables the step does not matter: every border there is tried."""
    path = tmp_path / "m.gguf"
    data = whole(path)
    tables = data.index(b"output_norm.weight") + 64
    borders = {at + extra for at in range(0, tables, step) for extra in (0, 1)}
    borders |= {len(data) - 1, tables + 1000, *range(24, 200)}
    for end in sorted(borders - {len(data)}):
        path.write_bytes(data[:end])
        with pytest.raises(FileError):
            gguf.read(path)


def test_scales_that_are_not_numbers_give_weights_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data = bytearray(whole(path))
    at = len(data) - 64 * 4 - 34 * 100
    data[at : at + 3400] = struct.pack("<H", 0x7E00) * 1700
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_model(path)
    read = gguf.read(path)
    assert any(np.isnan(read.weights[name]).any() for name in read.weights)


STRANGE = (
    0, 1, 2, 3, 7, 8, 9, 31, 33, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1,
)  # fmt: skip


def mutated(data: bytes, tables: int, draw: random.Random) -> bytes:
    """A copy with a few changes, most in the tables: numbers replaced, bytes flipped, moved, cut out."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at = draw.randrange(tables if draw.random() < 0.95 else len(changed))
        match draw.randrange(6):
            case 0:
                changed[at : at + 8] = struct.pack("<Q", draw.choice(STRANGE))
            case 1:
                changed[at : at + 4] = struct.pack("<I", draw.choice(STRANGE) % 2**32)
            case 2:
                changed[at] ^= 1 << draw.randrange(8)
            case 3:
                changed[at] = draw.randrange(256)
            case 4:
                del changed[at : at + draw.choice((1, 4, 8, 32))]
            case 5:
                other = draw.randrange(tables)
                changed[at : at + 16] = changed[other : other + 16]
    return bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.05 else changed)


@pytest.mark.parametrize("count", [100, pytest.param(100_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("name", SEEDS)
def test_a_mutated_file_is_read_or_refused(name: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data, draw, refused = whole(path, name), random.Random(count), 0
    # Half of the changes go to the metadata before the vocabulary, a tenth of the tables.
    ends = (data.index(b"tokenizer.ggml.tokens"), data.index(b"output_norm.weight") + 64)
    for i in range(count):
        with path.open("r+b") as file:
            file.truncate(file.write(mutated(data, ends[i % 2], draw)))
        # Measuring memory is slow, so it is done now and then.
        refused += not (is_model_soon(path) if i % 25 else is_model(path))
    assert count / 3 < refused < count
