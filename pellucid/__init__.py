"""A language-model workbench in which every number can be seen, checked and reproduced."""

__version__ = "0.1.0"
