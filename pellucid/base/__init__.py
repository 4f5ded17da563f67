"""The ground of every room: errors, files, names, types of numbers, strict reading, registries."""
