"""Rounding or bug: the checks of `verify`, and comparison of models, runs and other programs."""
