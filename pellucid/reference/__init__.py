"""The specification: what both engines compute, step by step, in NumPy. It never imports torch."""
