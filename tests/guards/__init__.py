"""Schedules that the guards must stand, on real servers: see tests/README.md."""
