"""Gradient communication: what of it compute could hide."""
