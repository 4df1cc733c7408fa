"""The version, in a module that needs nothing else."""

__version__ = "0.2.0"
