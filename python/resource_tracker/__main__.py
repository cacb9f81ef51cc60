"""`python -m resource_tracker` is the command `resource-tracker` of the same wheel."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command; on Unix in place of this process, so that signals and exit status are those of the command."""
    from ._session import _sidecar

    command = [_sidecar(), *sys.argv[1:]]
    try:
        if os.name == "posix":
            os.execvp(command[0], command)
        import subprocess

        sys.exit(subprocess.call(command))
    except OSError as error:
        sys.exit(f"error: cannot run `{command[0]}`: {error.strerror}")


if __name__ == "__main__":
    main()
