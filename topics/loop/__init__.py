"""Operations in flight, timers, tasks, listeners, connections and files over a Ring."""

from topics.loop.connection import Connection
from topics.loop.connection_table import ConnectionTable
from topics.loop.doors.listener import Listener
from topics.loop.files import Files
from topics.loop.loop import Loop, PassEnd
from topics.loop.ring import Ring
from topics.loop.streams import StreamHandler, StreamLimits
from topics.loop.tasks import Cancelled, Event, Future, Task
from topics.loop.timers import Timer

__all__ = [
    "Cancelled",
    "Connection",
    "ConnectionTable",
    "Event",
    "Files",
    "Future",
    "Listener",
    "Loop",
    "PassEnd",
    "Ring",
    "StreamHandler",
    "StreamLimits",
    "Task",
    "Timer",
]
