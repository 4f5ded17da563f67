"""Lessons whose numbers come from runs, worksheets to do by hand, and their marking."""
