"""A server whose packages are missing says which, and how to install them."""

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.extra import check_extra


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    check_extra(("starlette", "uvicorn"))
    with pytest.raises(UsageError, match=r"no_such_one and nor_this.*pip install 'pellucid\[serve\]'"):
        check_extra(("starlette", "no_such_one", "nor_this"))
