"""Tokenizers and chat templates: text to token ids and back, and where the texts themselves come from."""
