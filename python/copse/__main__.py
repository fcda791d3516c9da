"""The command `copse`, as the wheel has it: python3 -m copse solve ..."""
import os
import sys

from ._library import command


def main() -> None:
    program = command()
    try:
        os.execvp(program, [program] + sys.argv[1:])
    except OSError as why:
        sys.exit("copse: %s: %s" % (program, why.strerror))


if __name__ == "__main__":
    main()
