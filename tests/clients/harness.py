"""Functions of every client script: its one argument, and the form of its results."""

import sys

MIB = 1 << 20
# Exit status of a script that cannot run here. Its last line says why.
SKIPPED = 77


def claim(text, truth, *details):
    """Checks a claim. The first claim that does not hold ends the script."""
    if not truth:
        sys.exit(f"not true: {text} {' '.join(map(str, details))}")
    print(text)


def refusal(take, size):
    """Returns the framework's message if `take` does not get the bytes, and an empty text if it gets them."""
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
    """Calls `use()`, which prints the results of a normal run, or with an argument `obey()`, which checks claims inside that
    quota."""
    if len(sys.argv) == 1:
        use()
    else:
        obey(int(sys.argv[1]))
