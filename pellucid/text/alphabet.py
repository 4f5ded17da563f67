"""GPT-2's byte-to-unicode table: one printable character for each of the 256 bytes.

Radford et al. 2019. Printable Latin-1 bytes stand for themselves, the others are moved up from 256, so that a
vocabulary file holds no control characters: a space is Ġ, a line feed Ċ.
"""

_OWN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_MOVED = sorted(set(range(256)) - set(_OWN))

LETTER = {byte: chr(byte) for byte in _OWN} | {byte: chr(256 + i) for i, byte in enumerate(_MOVED)}
BYTE = {letter: byte for byte, letter in LETTER.items()}


def to_bytes(letters: str) -> bytes:
    """
    >>> to_bytes("ĠcafÃ©").decode()
    ' café'
    """
    return bytes(BYTE[letter] for letter in letters)
