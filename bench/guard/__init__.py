"""Limits the instructions that the protocol's machines may take: a measure without noise."""
