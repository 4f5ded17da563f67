"""The common part of every decoder of a module: the module, and its device and types."""

import torch

from pellucid.engine.transformer import Transformer


class ModuleDecoder:
    """Stands where the module stands; subclasses compute some of its calls in another way."""

    def __init__(self, module: Transformer) -> None:
        self.module, self.config = module, module.config

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        return self.module.cache_dtype
