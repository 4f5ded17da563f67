"""A worker process that encodes: reads batches of text from standard input, writes ids to standard output.

python -m pellucid.data.encoder TOKENIZER

A request is a count, then for each piece of text its length in bytes and whether a document ends with it,
then the UTF-8 of all pieces. The response is a status, the number of ids of each piece and all ids; or the
number of the piece that could not be encoded, and why. The process ends when its input does, so none is left
when its parent is killed.
"""

import signal
import struct
import sys
from typing import BinaryIO

import numpy as np

from pellucid.data.shard import Ids, id_type
from pellucid.errors import PellucidError
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Tokenizer

COUNT, FAILURE = struct.Struct("<Q"), struct.Struct("<QQ")
OK, FAILED = b"\0", b"\1"


def read_exactly(stream: BinaryIO, size: int) -> bytearray:
    """Returns `size` bytes of a pipe, or raises EOFError where it ends before."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got: int = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        done += got
    return data


def eos_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id that is written after each document."""
    return None if tokenizer.special.eos is None else tokenizer.id_of(tokenizer.special.eos)


def serve(tokenizer: Tokenizer, stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Answers requests until the input ends."""
    dtype = id_type(tokenizer.vocab_size)
    eos = eos_id(tokenizer)
    ending = np.array([] if eos is None else [eos], dtype)
    while True:
        try:
            (count,) = COUNT.unpack(read_exactly(stdin, COUNT.size))
        except EOFError:
            return
        lengths = np.frombuffer(read_exactly(stdin, 8 * count), "<u8").tolist()
        is_last = read_exactly(stdin, count)
        data, start = read_exactly(stdin, sum(lengths)), 0
        found, counts = list[Ids](), list[int]()
        try:
            for i, length in enumerate(lengths):
                ids = tokenizer.encode_array(data[start : start + length].decode()).astype(dtype)
                found += [ids, ending] if is_last[i] else [ids]
                counts.append(len(ids) + len(ending) * is_last[i])
                start += length
        except PellucidError as error:
            reason = str(error).encode()
            stdout.write(FAILED + FAILURE.pack(len(counts), len(reason)) + reason)
        else:
            stdout.write(OK + np.array(counts, "<u8").tobytes())
            stdout.write(np.concatenate(found).tobytes())
        stdout.flush()


if __name__ == "__main__":
    # Ctrl-C goes to every process of the terminal; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(from_pretrained(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
