"""The bill as a JSON file: every number of it, as `--json` prints it."""

import json
from pathlib import Path

from pellucid.base.files import UNPAIRED, check_format, read_bytes, validating
from pellucid.evaluation.evaluation_file import read_record, to_data
from pellucid.evaluation.quantization.bill import QuantizationBill
from pellucid.formats.folder import parse_table

FORMAT, VERSION = "pellucid-quantization-bill", 1
MOST_BYTES = 1 << 26


def format_bill_json(bill: QuantizationBill) -> str:
    """Returns the content of the file."""
    data = {"format": FORMAT, "version": VERSION, **to_data(bill)}
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def encode_bill(bill: QuantizationBill) -> bytes:
    """Returns the bytes of the file."""
    return format_bill_json(bill).encode("utf-8", UNPAIRED)


def read_bill(path: Path) -> QuantizationBill:
    """Returns the bill of a file; raises a FileError that names the damage."""
    with validating(path):
        data = parse_table(read_bytes(path, MOST_BYTES))
    data = check_format(path, data, "quantization bill", FORMAT, VERSION)
    with validating(path):
        fields = {key: value for key, value in data.items() if key not in ("format", "version")}
        bill: QuantizationBill = read_record(QuantizationBill, fields, "the bill")
        return bill
