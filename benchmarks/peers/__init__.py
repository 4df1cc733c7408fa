"""One script for each peer; each runs in its own environment as `python -m benchmarks.peers.X`."""
