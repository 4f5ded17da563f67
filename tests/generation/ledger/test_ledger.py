"""A ledger prints itself, saves itself and replays itself."""

from pathlib import Path

from pellucid.generation.ledger.ledger import Ledger
from tests.generation.small_ledgers import make_small_ledger


def test_a_ledger_is_printed_as_its_table_and_shown_as_one_line() -> None:
    ledger = make_small_ledger()
    assert "mean surprisal" in str(ledger)
    assert repr(ledger) == "<Ledger of 6 tokens: small, float32 on cpu>"


def test_a_saved_ledger_is_read_and_replayed(tmp_path: Path) -> None:
    ledger = make_small_ledger()
    ledger.save(tmp_path / "a.json")
    found = Ledger.read(tmp_path / "a.json")
    assert found == ledger
    assert not found.replay().mismatches
    assert ledger.why(2) == found.why(2)
