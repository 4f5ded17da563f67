"""What every test shares: signals that are delivered, the share of the large grids that a run takes, and no
search for garbage in what stays."""

import gc
import signal
from collections import defaultdict
from collections.abc import Generator

import pytest

from tests import rotation

# Where a shell starts the suite with `nohup` or `&`, it ignores signals, and each process would inherit that.
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, default)


def pytest_configure() -> None:
    rotation.choose_share()
    gc.disable()  # what is imported and collected stays; a third of the time goes into searching it


def pytest_collection_finish() -> None:
    """No later collection of garbage looks at the modules and the tests again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves of each function marked `rotating` the share of this run, and what the command line names."""
    grids = defaultdict(list)
    for item in items:
        if item.get_closest_marker("rotating"):
            grids[item.nodeid.partition("[")[0]].append(item.nodeid)
    cases = {case for grid in grids.values() for case in grid}
    taken = {case for grid in grids.values() for case in rotation.take_share(grid)}
    taken |= {case for case in cases if any(argument.endswith(case) for argument in config.args)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in cases - taken])
    items[:] = [item for item in items if item.nodeid not in cases - taken]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("rotating"):
        report.sections.append(("run it, or its share, again", rotation.how_to_repeat(item.nodeid)))
    return report
