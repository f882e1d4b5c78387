"""The state of a topic that may not exist."""

from __future__ import annotations

import topics
from topics.errors import RequestError


def state_if_there(log: topics.AnyLog, topic: str) -> topics.TopicState | None:
    """Return the state of a topic, without counting it as read; None if there is no such topic."""
    try:
        return log.state(topic, touch=False)
    except RequestError as error:
        if error.code != "topic_not_found":
            raise
        return None
