"""What every test shares: signals that are delivered, and the share of the large grids that a run takes.

A test marked `rotating` has more cases than one run needs. Each case belongs to one of ten shares, by a hash
of its name. A run takes the share of the day, so in ten days each case has run. `PELLUCID_ROTATION=3` takes
share 3, `PELLUCID_ROTATION=all` every case (`make torture`); a case that the command line names always runs.
"""

import datetime
import os
import signal
import zlib
from collections.abc import Generator

import pytest

SHARES = 10
ROTATION = "PELLUCID_ROTATION"

# Where a shell starts the suite with `nohup` or `&`, it ignores signals, and each process would inherit that.
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, default)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the share once, in the environment, so that every worker takes the same at midnight too."""
    chosen = os.environ.setdefault(ROTATION, str(datetime.date.today().toordinal() % SHARES))
    if chosen != "all" and chosen not in map(str, range(SHARES)):
        raise pytest.UsageError(f"{ROTATION} must be 0 to {SHARES - 1} or all; got {chosen!r}.")


def pytest_report_header() -> str:
    return f"rotating grids: share {os.environ[ROTATION]} of {SHARES} ({ROTATION})"


def share_of(nodeid: str) -> int:
    """Returns the share of a case: a hash, so that it does not follow the order of the parameters."""
    return zlib.crc32(nodeid.encode()) % SHARES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = os.environ[ROTATION]
    if chosen == "all":
        return

    def is_taken(item: pytest.Item) -> bool:
        if not item.get_closest_marker("rotating"):
            return True
        return share_of(item.nodeid) == int(chosen) or any(item.nodeid in arg for arg in config.args)

    taken = [is_taken(item) for item in items]
    config.hook.pytest_deselected(items=[item for item, kept in zip(items, taken, strict=True) if not kept])
    items[:] = [item for item, kept in zip(items, taken, strict=True) if kept]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Says of a rotating case that failed how to run it, and its share, again."""
    report = yield
    if report.failed and item.get_closest_marker("rotating"):
        function = item.nodeid.partition("[")[0]
        again = (
            f"python -m pytest '{item.nodeid}'\n{ROTATION}={os.environ[ROTATION]} python -m pytest {function}"
        )
        report.sections.append(("run it, or its share, again", again))
    return report
