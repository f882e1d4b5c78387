"""The command that serves, and the program of the processes that it starts."""
