"""``python -m fairij``."""

from fairij.cli import app

app()
