"""Python contestants: one file a library, and the two ways to run their loops."""
