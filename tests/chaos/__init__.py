"""Tests the library with real servers, real processes and real faults: see README.md."""
