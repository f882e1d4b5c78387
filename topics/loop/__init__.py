"""Operations in flight, timers, tasks, listeners, connections and files over a Ring."""

from topics.loop.connection import Connection
from topics.loop.files import Files
from topics.loop.links import Links
from topics.loop.listener import Listener
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.loop.streams import StreamHandler, StreamLimits
from topics.loop.tasks import Cancelled, Event, Future, Task
from topics.loop.timers import Timer

__all__ = [
    "Cancelled",
    "Connection",
    "Event",
    "Files",
    "Future",
    "Links",
    "Listener",
    "Loop",
    "Ring",
    "StreamHandler",
    "StreamLimits",
    "Task",
    "Timer",
]
