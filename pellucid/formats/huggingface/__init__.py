"""Hugging Face folders, in and out, as `transformers` has them: config, safetensors and tokenizer."""

from pellucid.formats.huggingface.reading import read
from pellucid.formats.huggingface.writing import write

__all__ = ["read", "write"]
