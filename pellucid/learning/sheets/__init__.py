"""Worksheets: the arithmetic of a run as a program over printed numbers, its pages, and their marking."""
