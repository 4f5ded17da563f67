"""Decoding strategies: how one request goes from logits to texts."""
