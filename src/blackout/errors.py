"""The one exception a user can cause; the command line prints it as a single line."""

__all__ = ["UserError"]


class UserError(Exception):
    """Something outside the program is wrong: a file, a line, an option or a number.

    The message names it in one line, without the reader having to know the code.
    """
