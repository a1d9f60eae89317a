"""Runs the golden schedules over the libraries that users install; see README.md here."""
