"""Endpoints: the function that answers each route."""
