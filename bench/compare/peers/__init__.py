"""Drives the compared libraries, each with its own defaults, by lines of JSON."""
