"""Tokenizers compared on the same texts."""
