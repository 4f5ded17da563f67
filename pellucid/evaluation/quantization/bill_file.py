"""The file of a bill: every number of it, as `--json` prints it."""

from pathlib import Path

from pellucid.base.files import check_format, read_bytes, validating
from pellucid.evaluation.evaluation_file import read_record
from pellucid.evaluation.quantization.bill import QuantizationBill
from pellucid.formats.folder import parse_table
from pellucid.report.file import VERSION, ReportFile

BILL = ReportFile("quantize", "a quantization bill", "pellucid-quantization-bill")
MOST_BYTES = 1 << 26


def read_bill(path: Path) -> QuantizationBill:
    """Returns the bill of a file; raises a FileError that names the damage."""
    with validating(path):
        data = parse_table(read_bytes(path, MOST_BYTES))
    data = check_format(path, data, "quantization bill", BILL.format, VERSION)
    with validating(path):
        fields = {key: value for key, value in data.items() if key not in ("format", "version")}
        bill: QuantizationBill = read_record(QuantizationBill, fields, "the bill")
        return bill
