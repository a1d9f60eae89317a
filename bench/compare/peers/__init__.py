"""The libraries, each driven with its own defaults by lines of JSON."""
