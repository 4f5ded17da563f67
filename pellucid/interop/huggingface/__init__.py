"""Hugging Face folders, in and out, as `transformers` has them: config, safetensors and tokenizer."""

from pellucid.interop.huggingface.reading import read
from pellucid.interop.huggingface.writing import write

__all__ = ["read", "write"]
