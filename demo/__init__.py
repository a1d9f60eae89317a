"""`make demo`: the main job on real servers, told in a quarter of a minute."""
