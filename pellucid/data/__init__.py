"""Data for training: token files from any amount of text, texts that are generated, and batches of rows."""
