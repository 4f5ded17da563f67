"""What happened in a run: kept as it happens, drawn, located, and made again."""
