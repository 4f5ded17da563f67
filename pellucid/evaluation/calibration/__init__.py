"""Calibration: whether a model's probabilities are frequencies, and the temperature at which they are."""
