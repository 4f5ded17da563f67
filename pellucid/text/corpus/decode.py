"""Bytes to text: strict UTF-8, or with every bad byte replaced and counted."""

from dataclasses import dataclass

from pellucid.base.errors import FileError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class EncodingError(FileError):
    """Bytes that are not UTF-8."""


@dataclass
class Decoder:
    """Decodes the documents of one file."""

    file: str
    replace: bool = False
    replaced: int = 0
    """Bytes that were not UTF-8, so far."""

    def text(self, data: bytes, at: int) -> str:
        """Returns the text of bytes that begin at an offset of the file.

        >>> decoder = Decoder("a.txt", replace=True)
        >>> decoder.text(b"caf\\xe9", 0), decoder.replaced
        ('caf�', 1)
        """
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if not self.replace:
                raise self._refusal(data, at, error) from None
        text = data.decode(errors="replace")
        # Nothing but U+FFFD itself decodes to U+FFFD from the bytes EF BF BD, so the rest are ours.
        ours = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
        self.replaced += len(data) - (len(text.encode()) - ours * len(REPLACEMENT.encode()))
        return text

    def _refusal(self, data: bytes, at: int, error: UnicodeDecodeError) -> EncodingError:
        place = at + error.start
        utf16 = place == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff")
        remedy = (
            "It begins as UTF-16 does: convert it with iconv -f UTF-16 -t UTF-8"
            if utf16
            else "Convert the file to UTF-8"
        )
        return EncodingError(
            f"{self.file} is not UTF-8: byte {place} is 0x{data[error.start]:02x} ({error.reason}). {remedy}."
        )
