"""Watching a live run against the curve of its small siblings."""
