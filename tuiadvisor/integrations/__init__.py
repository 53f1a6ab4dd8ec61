"""Inside a training program, for those who want it there: callbacks that record, a summary for experiment trackers.

Runs in the training's own process, so it imports nothing of ours but this package and errors, and no failure leaves it.
"""
