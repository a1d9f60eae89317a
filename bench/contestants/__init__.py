"""Programs that lock with one library each, in four languages; `entrants.py` lists them."""
