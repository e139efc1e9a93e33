"""How the command fails: one line on stderr, exit code 1 for failures and 2 for wrong usage; `--debug` shows more."""

import os
import sys
import traceback
import warnings

import click
from click.exceptions import NoArgsIsHelpError

from forecaster.errors import ForecasterError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def run_command(command: click.Command, arguments: list[str], *, debug: bool) -> int:
    """Return the exit code of one call of the command: 0 done, 1 failed, 2 usage, 130 interrupted."""
    warnings.showwarning = _say_warning
    try:
        code = command.main(args=arguments, prog_name="foreshock", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)  # the help, as it is laid out
        return USAGE
    except click.UsageError as error:
        hint = f" (see '{error.ctx.command_path} --help')" if error.ctx else ""
        _say(f"error: {error.format_message()}{hint}")
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # the reader has seen enough (`| head`); what is left in the buffer must not fail again when Python exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (click.ClickException, ForecasterError, ValueError, OSError) as error:
        if debug:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        _say(f"error: {message or type(error).__name__}")
        return FAILED
    except Exception as error:
        if debug:
            traceback.print_exc()
        _say(f"error: {type(error).__name__}: {error} (a bug; run with --debug to see where)")
        return FAILED


def _say_warning(message: Warning | str, *_: object) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    print(" ".join(message.split()), file=sys.stderr)
