"""One script per peer. Each runs in its own environment as `python -m benchmarks.peers.X`.

The settings were picked on this problem, by agreement with its reference. A user has no such
reference, so the results favour the peers. Each script says what was tried.
"""
