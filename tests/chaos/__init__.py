"""Real servers, real processes, real faults: see README.md."""
