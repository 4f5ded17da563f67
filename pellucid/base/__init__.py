"""The ground of every room: errors, files, names, types of numbers, one schema of fields, registries."""
