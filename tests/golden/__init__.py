"""Numbers made by others, and the computations that must reproduce them."""
