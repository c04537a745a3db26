"""Picking the winner of a sweep early."""
