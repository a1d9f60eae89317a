"""Tests the guards on real servers, in schedules that take long: see tests/README.md."""
