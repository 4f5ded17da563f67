"""Evaluation: loss, tasks, calibration, tokenizers; one implementation for training and for users."""
