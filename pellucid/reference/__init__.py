"""The specification: what the product computes, step by step, in NumPy. It never imports torch."""
