"""The decoder of a model: its compiled decoder on a CPU, its kernels on a GPU, else the module itself."""

import logging
from functools import cache
from typing import TYPE_CHECKING

from pellucid.formats.pretrained import parameter_count

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from pellucid.generation.decoders import Decoder
    from pellucid.model import Model

LARGE = 10_000_000
"""Parameters from which it is worth a line that a model is decoded in PyTorch."""

log = logging.getLogger(__name__)


def make_decoder(model: "Model") -> "Decoder":
    """Returns the model's fastest decoder, or its module where the machine or a choice of the model leaves
    none; of a large model, the log then says why, once."""
    from pellucid.generation import decoders

    matters = parameter_count(model.config.parameters()) >= LARGE
    return decoders.make_decoder(model.module, _say_once if matters else log.info)


@cache
def _say_once(reason: str) -> None:
    log.warning("%s", reason)
