"""The version, in a room of its own so that nothing needs the whole package to know it."""

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def code_hash() -> str:
    """The beginning of a SHA-256 over the package's own source: which code made a record.

    That of the files as they are when it is first asked for.
    """
    package, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
