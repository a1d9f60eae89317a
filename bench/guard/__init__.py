"""Holds the work of the protocol's machines to a number of instructions: no timing, no noise."""
