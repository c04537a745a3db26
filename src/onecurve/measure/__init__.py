"""Measuring: deviation, noise floor, irreducible loss, and the verdict."""
