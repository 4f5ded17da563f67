"""The ground of every room: errors, files, names, types of numbers, the schema of what is read, registries."""
