"""Conventions by evidence: how much worse each other reading of a model predicts a text."""
