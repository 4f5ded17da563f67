"""The plots of the full level, one file each: what goes wrong, and what puts it right."""
