"""The settings of a request, and every way in which they are given."""
