"""Pure functions from event columns to named metrics. No I/O, no clock."""
