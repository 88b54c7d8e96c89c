"""What every client script shares: its one argument, and how it says what it saw."""

import sys

MIB = 1 << 20
# Exit status of a script that cannot run here. Its last line says why.
SKIPPED = 77


def claim(text, truth, *details):
    """A claim that must hold; the first that does not ends the script."""
    if not truth:
        sys.exit(f"not true: {text} {' '.join(map(str, details))}")
    print(text)


def refusal(take, size):
    """The framework's message when `take` does not get so many bytes; empty where it gets them."""
    try:
        take(size)
    except RuntimeError as error:
        return str(error)
    return ""


def skip(reason):
    """Ends a script that cannot run here."""
    print(reason)
    sys.exit(SKIPPED)


def main(use, obey):
    """Without an argument `use()` prints what a normal run sees; with one, `obey()` claims what holds inside that quota."""
    if len(sys.argv) == 1:
        use()
    else:
        obey(int(sys.argv[1]))
