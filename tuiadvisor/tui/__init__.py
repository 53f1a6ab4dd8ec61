"""Textual screens. They show a RunView and compute nothing."""
