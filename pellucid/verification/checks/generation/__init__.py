"""What is drawn, generated and computed again."""
