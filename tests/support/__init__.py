"""What all suites share: real servers, a fault proxy, certificates and workers of peer libraries.

Knows nothing of Quorlock itself, so that it can judge any lock library.
"""
