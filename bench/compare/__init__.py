"""The programs behind COMPARE.md: each row about lock libraries can be run by anybody.

    make compare                              every row, each three times
    make compare COMPARE="--times 1 pottery"  only what names a library or a row

`holding.py`, `nodes.py` and `rounds.py` have one function a row; `peers/` drives the libraries.
"""
