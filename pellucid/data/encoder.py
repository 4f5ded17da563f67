"""The process that encodes: batches of text come in on standard input, ids go out on standard output.

python -m pellucid.data.encoder TOKENIZER

A batch is a count, then for each piece of text its length in bytes and whether a document ends with it, then
the UTF-8 of all of them. The answer is a status and, for each piece, how many ids it has, then all ids; or
the number of the piece that could not be read, and why. The process ends when its input does, so none is
left when the one that started it is killed.
"""

import signal
import struct
import sys
from typing import BinaryIO

import numpy as np

from pellucid.data.shard import Ids, id_type
from pellucid.errors import PellucidError
from pellucid.text.pretrained import from_pretrained
from pellucid.text.tokenizer import Tokenizer

COUNT, WRONG = struct.Struct("<Q"), struct.Struct("<QQ")
RIGHT_STATUS, WRONG_STATUS = b"\0", b"\1"


def read_exactly(stream: BinaryIO, size: int) -> bytearray:
    """So many bytes of a pipe, or EOFError where it ends before."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got: int = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        done += got
    return data


def end_token(tokenizer: Tokenizer) -> int | None:
    """The id that is put after each document."""
    return None if tokenizer.special.eos is None else tokenizer.id_of(tokenizer.special.eos)


def serve(tokenizer: Tokenizer, stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Answer batches until there are no more."""
    dtype = id_type(tokenizer.vocab_size)
    end = end_token(tokenizer)
    ending = np.array([] if end is None else [end], dtype)
    while True:
        try:
            (count,) = COUNT.unpack(read_exactly(stdin, COUNT.size))
        except EOFError:
            return
        lengths = np.frombuffer(read_exactly(stdin, 8 * count), "<u8").tolist()
        whole = read_exactly(stdin, count)
        data, start = read_exactly(stdin, sum(lengths)), 0
        found, counts = list[Ids](), list[int]()
        try:
            for i, length in enumerate(lengths):
                ids = tokenizer.encode_array(data[start : start + length].decode()).astype(dtype)
                found += [ids, ending] if whole[i] else [ids]
                counts.append(len(ids) + len(ending) * whole[i])
                start += length
        except PellucidError as error:
            reason = str(error).encode()
            stdout.write(WRONG_STATUS + WRONG.pack(len(counts), len(reason)) + reason)
        else:
            stdout.write(RIGHT_STATUS + np.array(counts, "<u8").tobytes())
            stdout.write(np.concatenate(found).tobytes())
        stdout.flush()


if __name__ == "__main__":
    # Ctrl-C goes to every process of the terminal; the one that started us decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(from_pretrained(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
