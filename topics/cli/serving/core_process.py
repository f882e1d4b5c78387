"""The program of the process of a core, which the supervisor of a server of several starts."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from topics.cli.exit_codes import REFUSED, report
from topics.cli.output.log_lines import log_to_stderr
from topics.errors import TopicsError
from topics.server.cores.settings_file import read_settings


def main(arguments: Sequence[str]) -> int:
    """Run a core until its end. Return the exit code.

    arguments: its number, and the descriptors of `serve_core` and of a file with the settings.
    """
    core, life, settings = map(int, arguments)
    config = read_settings(settings)
    log_to_stderr(config.log_level, config.log_format, f"core {core}")
    gc.disable()  # none of the modules that load is garbage; the server enables it once ready
    from topics.server.processes.serve_core import serve_core  # noqa: PLC0415

    try:
        return serve_core(config, core, life)
    except (TopicsError, OSError) as error:
        report(error, f"this was core {core}")
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
