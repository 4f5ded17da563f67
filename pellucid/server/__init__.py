"""Servers: a model over HTTP as OpenAI serves it, and the explorer, the page on which every number opens."""

import importlib.util
from collections.abc import Sequence

from pellucid.base.errors import UsageError


def check_extra(packages: Sequence[str], otherwise: str = "") -> None:
    """Raises where a package is not installed; `otherwise` is what can be done without it."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a server needs {' and '.join(missing)}: pip install 'pellucid[serve]'. {otherwise}".strip()
        )
