"""Make a model that you already have fair, without training it again."""

__version__ = "0.1.0"
