"""Tests of Quorlock: a package, so that `python -m tests.support` works from the root."""
