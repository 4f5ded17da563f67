"""Tokenizer algorithms, step by step: the readable twins of the fast ones."""
