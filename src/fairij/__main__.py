"""The command `fairij`, and ``python -m fairij``."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # as in `fairij.cli.errors`, which may not be loaded yet


def main() -> None:
    """Run a command. Ctrl-C while libraries are loaded ends in a sentence too."""
    try:
        from fairij.cli import app

        app()
    except KeyboardInterrupt:
        print("error: interrupted; nothing half-written is left.", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
