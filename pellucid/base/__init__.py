"""Common ground: errors, files, the glossary of names, dtypes, the schema of values, registries."""
