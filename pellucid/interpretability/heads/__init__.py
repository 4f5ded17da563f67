"""Heads of a model: what they attend to, and the loss without them."""
