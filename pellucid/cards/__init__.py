"""What one reads about a model: its conventions, its choices, and what a wrong one would cost."""
