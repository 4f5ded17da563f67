"""From any amount of text to token files, and from token files to batches."""
