"""Answers: what a step says of each token, as lines of JSON between processes and as clients read it."""
