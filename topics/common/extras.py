"""The name under which `topics` is installed. `topics` itself is the name of another project."""

DISTRIBUTION = "topics-log"


def install_command(extra: str) -> str:
    """Return the command that installs an optional part: `arrow`, `spark`, `zstd` or `bench`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
