"""The program of a core that serves nothing: it does what the variable STUBS has for its number, word by word.

exit:N    end with this code
note      write down what it was given, beside the port file
ready     report that it is ready
wait      for SIGTERM
port      wait for the port file
stop      send SIGTERM to its supervisor
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

core, _life, settings = map(int, sys.argv[1:])
config = json.loads(os.pread(settings, 1 << 16, 0))
port_file = Path(os.environ["STUB_PORT_FILE"])
for word in json.loads(os.environ["STUBS"])[core].split():
    if word.startswith("exit:"):
        sys.exit(int(word.partition(":")[2]))
    elif word == "note":
        note = {
            "argv": sys.argv,
            "variables": dict(os.environ),
            "config": config,
            "group": os.getpgid(0) == os.getpid(),
        }
        Path(f"{port_file}.{core}").write_text(json.dumps(note))
    elif word == "ready":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            directory, _, name = os.environ["NOTIFY_SOCKET"].rpartition("/")
            os.chdir(directory)  # the path may be too long for the name of a socket
            sender.sendto(b"READY=1\nSTATUS=serving", name)
    elif word == "wait":
        signal.sigwait({signal.SIGTERM})  # it is blocked
    elif word == "port":
        while not port_file.exists():
            os.sched_yield()
    elif word == "stop":
        os.kill(os.getppid(), signal.SIGTERM)
