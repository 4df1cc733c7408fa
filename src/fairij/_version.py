"""The version, in a room of its own so that nothing needs the whole package to know it."""

__version__ = "0.1.0"
