"""The steps that belong together: which are compared, and since when the job is as it is now."""
