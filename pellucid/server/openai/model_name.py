"""The name of a served model, by which clients ask for it."""

import os
import re
from pathlib import Path

from pellucid.base.errors import UsageError, show

_OTHER = re.compile(r"[^A-Za-z0-9._:/-]+")
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_FILES = (".gguf", ".toml")


def check_model_name(name: str) -> str:
    """Returns a name; raises where a client could not send it as it is."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name must have 1 to 128 of the characters A-Z a-z 0-9 . _ : / - alone; got {show(name)}."
        )
    return name


def make_model_name(source: str) -> str:
    """Returns the name of a model that is opened from a source: of a path, its last part.

    >>> make_model_name("smollm2"), make_model_name("hf:org/small"), make_model_name("/models/my model.gguf")
    ('smollm2', 'org/small', 'my-model')
    >>> make_model_name("runs/a/model")
    'a'
    """
    if source.startswith("hf:"):
        last = source.removeprefix("hf:")
    else:
        path = Path(os.path.abspath(source))
        last = (path.parent if path.name == "model" else path).name  # a run has its model in model/
        last = last.removesuffix(path.suffix) if path.suffix in _FILES else last
    return _OTHER.sub("-", last).strip("-")[:128] or "model"
