"""The bill as JSON: what is read is what was written, and a damaged file says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError
from pellucid.evaluation.quantization.bill_file import VERSION, read_bill
from tests.evaluation.quantization.small_bills import make_bill, make_exact, small_bill
from tests.evaluation.small_models import make_model


@pytest.mark.parametrize("is_exact", [False, True])
def test_what_is_read_is_what_was_written(is_exact: bool, tmp_path: Path) -> None:
    bill = make_bill(make_exact(make_model())) if is_exact else small_bill()
    path = tmp_path / "bill.json"
    bill.save(path)
    again = read_bill(path)
    assert again == bill and str(again) == str(bill)


def test_the_file_has_every_number_of_the_table() -> None:
    bill = small_bill()
    data = json.loads(bill.report().to_json())
    assert (data["format"], data["version"]) == ("pellucid-quantization-bill", VERSION)
    assert data["bytes"] == bill.bytes and data["total"]["kl"]["value"] == bill.total.kl.value
    assert len(data["matrices"]) == len(bill.matrices)
    assert {"name", "shape", "type", "bytes", "relative_error", "largest_error"} == set(data["matrices"][0])
    assert [one["pattern"] for one in data["costs"]["groups"]] == [one.pattern for one in bill.costs.groups]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "x"},
        {"bytes": "many"},
        {"total": None},
        {"matrices": [{}]},
        {"more": 1},
        {"bits_per_weight": -1e400},
    ],
)
def test_a_damaged_file_is_refused_by_its_name(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bill.json"
    path.write_text(json.dumps(json.loads(small_bill().report().to_json()) | change))
    with pytest.raises(FileError, match=r"bill\.json"):
        read_bill(path)
