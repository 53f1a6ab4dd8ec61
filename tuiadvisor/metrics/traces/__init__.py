"""Traces of other tools: clocks, arrivals at collectives, device time, operation graphs."""
