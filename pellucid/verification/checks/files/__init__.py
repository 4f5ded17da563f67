"""Checks of what a model's file holds, and how it is read."""
