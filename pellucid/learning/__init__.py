"""Lessons, and the worksheets that belong to them."""
