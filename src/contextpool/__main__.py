"""`python -m contextpool` and the `contextpool` command."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress


def main() -> None:
    """Run the command line."""
    # Imports make many objects and hardly any garbage: .4 s of a first answer.
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)  # nothing is looked through for garbage once more at the end: .5 s
    # Threads that wait by spinning stall one another where other work shares the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from contextpool.cli.app import app

    run_app(app)


def run_app(app: Callable[[], object]) -> None:
    """Call a command line; every error that we raise on purpose is one message and an exit code."""
    from contextpool.cli.output import data_warnings_shown, note, print_error
    from contextpool.errors import ContextPoolError, PeerFailedError, StoppedError, speaking_options

    try:
        with speaking_options(), data_warnings_shown():
            try:
                app()
            finally:
                sys.stdout.flush()  # what cannot be written is told here, not at the interpreter's end
    except PeerFailedError as error:  # the process that failed tells it
        sys.exit(error.exit_code)
    except StoppedError as stopped:
        note(f"contextpool: {stopped}")
        sys.exit(stopped.exit_code)
    except ContextPoolError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_error("interrupted")
        sys.exit(130)
    except MemoryError:
        print_error("there is not enough memory for this. Take a smaller input, or a machine with more.")
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output left, as in `| head`
        _drop_output()
        sys.exit(1)
    except OSError as error:  # a full disk, no permission: whatever a writer has not told in words of its own
        _drop_output()
        print_error(_told(error))
        sys.exit(1)


def _drop_output() -> None:
    """What is left in the buffer cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: OSError) -> str:
    where = "the output" if error.filename is None else os.fsdecode(error.filename)
    folder, _, name = where.rpartition("/")
    whole = re.fullmatch(r"\.(.+)\.[^.]+\.part", name)  # a file takes its name once it is complete
    place = where if whole is None else f"{folder}/{whole[1]}".lstrip("/" if not folder else "")
    return (
        f"{place} cannot be read or written ({error.strerror or error}). Make room, check the permissions, or choose "
        "another place."
    )


if __name__ == "__main__":
    main()
