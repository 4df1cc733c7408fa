"""Code in a process of its own, without the time that it takes to load all libraries.

`run_apart` asks a server, which has loaded them once, to fork. If the code ends its process, or
is killed, that is in the exit code, as after `subprocess.run`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from select import select
from typing import Any

LIBRARIES = "import numpy, pandas, scipy.stats, sklearn.ensemble, torch; from fairij import FairIJ"


def run_apart(
    code: str, *arguments: object, cwd: Path | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run it as ``python -c`` would, from a folder."""
    server = _server()
    assert server.stdin is not None
    with tempfile.TemporaryDirectory() as name:
        printed = [str(Path(name) / stream) for stream in ("out", "err")]
        asked = {"code": code, "arguments": [str(one) for one in arguments], "printed": printed}
        server.stdin.write(json.dumps(asked | {"cwd": str(cwd or Path.cwd())}) + "\n")
        server.stdin.flush()
        child = _told(server, 60)
        try:
            status = _told(server, timeout)
        except TimeoutError:
            os.killpg(child, signal.SIGKILL)
            _told(server, 60)
            raise
        out, err = (Path(path).read_text(errors="replace") for path in printed)
    return subprocess.CompletedProcess(code, os.waitstatus_to_exitcode(status), out, err)


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # which ends its input, and so the server
    _told(server, 120)
    return server


def _told(server: subprocess.Popen[str], seconds: float) -> int:
    """The next number that the server says; it says nothing ahead."""
    assert server.stdout is not None
    if not select([server.stdout], [], [], seconds)[0]:
        raise TimeoutError(f"nothing was heard for {seconds} seconds")
    return int(server.stdout.readline())


def _serve() -> None:
    exec(LIBRARIES, {})
    print(0, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _do(asked)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


def _do(asked: dict[str, Any]) -> None:
    """What the forked process does, to its end."""
    ended = 1
    try:
        os.setsid()  # so that its own children can be ended with it
        os.chdir(asked["cwd"])
        for number, path in enumerate(asked["printed"], 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["-c", *asked["arguments"]]
        sys.path[0] = ""
        exec(asked["code"], {"__name__": "__main__"})
        ended = 0
    except SystemExit as end:
        ended = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended)


if __name__ == "__main__":
    _serve()
