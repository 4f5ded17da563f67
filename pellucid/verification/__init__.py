"""Noise or bug: each value recomputed from its own recorded inputs, and one verdict."""
