"""Spans, colours and the widget that draws lines."""
