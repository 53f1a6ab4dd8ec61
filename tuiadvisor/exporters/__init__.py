"""A recording written anew: a part of it, without names, as tables, as a trace. Nothing is ever overwritten."""
