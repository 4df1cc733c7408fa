"""Models that can only be asked for scores: their log-odds stay, and a small correction is added.

``z(x) = log-odds(x) + f(x) theta``, where ``f`` are functions of the user's own columns that are
fixed before the edit (`columns`, `trees`), and ``theta`` is zero to begin with.
"""
