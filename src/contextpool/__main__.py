"""`python -m contextpool` and the `contextpool` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def main() -> None:
    """Run the command line."""
    # Threads that wait by spinning stall one another where other work shares the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from contextpool.cli.app import app

    run_app(app)


def run_app(app: Callable[[], object]) -> None:
    """Call a command line; every error that we raise on purpose is one message and an exit code."""
    from contextpool.cli.output import print_error
    from contextpool.errors import ContextPoolError, PeerFailedError

    try:
        app()
    except PeerFailedError as error:  # the process that failed tells it
        sys.exit(error.exit_code)
    except ContextPoolError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_error("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
