"""Texts that are generated: stories from a grammar whose entropy is known, and tasks with one answer."""
