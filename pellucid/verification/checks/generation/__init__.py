"""Checks of what is drawn, generated and computed again."""
