"""How fast Quorlock is, measured side by side with the other libraries: `make bench`.

`workloads` measure, `report` tells; `contestants` are programs of their own, listed in `entrants`.
"""
