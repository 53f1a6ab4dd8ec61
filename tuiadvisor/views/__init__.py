"""Frozen pictures that screens, reports and JSON show; nothing computes after them."""
