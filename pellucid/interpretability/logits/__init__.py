"""The origin of a logit: the lens, tuned or not, direct attribution, and the search for the largest."""
