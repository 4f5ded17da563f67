"""The history of a run: kept as it happens, drawn, located, and made again."""
