"""Text to token ids and back, and the texts themselves."""
