"""`explain --flatten`: a chain of additions as one sum, on the command line and in Python."""

from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.explanation.trace_file import write
from tests.cli.commands import Shell
from tests.explanation.test_cell_arrays import make_trace

AT = "blocks.2.resid_post[t=1,c=2]"


def test_the_command_prints_the_sum_and_that_the_order_differs(shell: Shell, tmp_path: Path) -> None:
    write(make_trace(), tmp_path / "t.json", None)
    plain, flat = (
        shell("explain", "t.json", "--at", AT, "--depth", "0", *more) for more in ([], ["--flatten"])
    )
    assert (plain.code, flat.code) == (0, 0)
    assert "resid_mid" in plain.out and "resid_mid" not in flat.out
    assert "these 7 terms" in flat.out and "7 terms" not in plain.out


def test_python_flattens_alike_and_wants_a_truth_value() -> None:
    found = pellucid.explain(make_trace(), at=AT, flatten=True)
    assert len(found.operands) == 6 and found.is_flattened  # type: ignore[union-attr]
    with pytest.raises(UsageError):
        pellucid.explain(make_trace(), at=AT, flatten=1)  # type: ignore[arg-type]
