"""Figures with their limits; `make bench` runs them."""
