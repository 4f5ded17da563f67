"""Noise or bug: recomputed values, one verdict, the catalogue of checks, and models and runs compared."""
