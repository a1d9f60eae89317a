"""What COMPARE.md says of lock libraries, each row by a program that anybody can run.

    make compare                              every row, each three times
    make compare COMPARE="--times 1 pottery"  only what names a library or a row

`holding.py`, `nodes.py` and `rounds.py` have one function a row; `peers/` drives the libraries.
"""
