"""The command line."""

from __future__ import annotations

from fairij.cli.commands import app

__all__ = ["app"]
