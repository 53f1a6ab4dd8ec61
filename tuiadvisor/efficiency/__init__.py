"""MFU, HFU and the roofline: FLOPs of a step, peaks of devices, and what lies between. Pure: no file, no clock."""
