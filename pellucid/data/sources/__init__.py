"""The data of a run: text, token files, generated stories and tasks, or conversations."""
