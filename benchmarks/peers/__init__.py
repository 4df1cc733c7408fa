"""One script for each peer; each runs in its own environment as `python -m benchmarks.peers.X`.

The settings were picked on this very problem, by agreement with its reference, which a user does
not have: the rows flatter the peers rather than the reverse. What was tried is said in each script.
"""
