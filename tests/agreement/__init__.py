"""One computation done twice, by different means, value by value."""
