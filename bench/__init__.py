"""Measures how fast Quorlock is, side by side with other libraries: `make bench`.

`workloads` measure, `report` tells; `contestants` are programs of their own, listed in `entrants`.
"""
