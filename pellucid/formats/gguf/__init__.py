"""GGUF, the single-file format of llama.cpp: weights, often quantized, with everything needed to run them."""

from pellucid.formats.gguf.reading import read
from pellucid.formats.gguf.writing import write

__all__ = ["read", "write"]
