"""Frames on the wire and on disk: the same bytes, the same reader."""
