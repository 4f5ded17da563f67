"""Example commands, as messages propose them: each works on the model that it names."""

import os
import shlex
from collections.abc import Sequence
from typing import Any

from pellucid.formats.resolve import open_model
from pellucid.model import Model
from pellucid.text.sample import propose_prompt


def propose_command(command: str, model: Model | str | os.PathLike[str], sides: Sequence[Any] = ()) -> str:
    """Returns a command on a model with a prompt that it encodes, as a shell takes it; `sides` are the
    arguments before the prompt where the model is not the only one."""
    opened = open_model(os.fspath(model)) if isinstance(model, str | os.PathLike) else model.pretrained
    if opened.tokenizer is None:
        prompt = str(list(range(min(2, opened.config.vocab_size))))
    else:
        prompt = propose_prompt(opened.tokenizer, opened.config.context_length)
    names = [
        os.fspath(one) if isinstance(one, str | os.PathLike) else getattr(one, "name", "…")
        for one in sides or [model]
    ]
    return shlex.join(["pellucid", command, *names, prompt or "…"])
