"""Readers of a run for people without a browser."""
