"""The topics of a snapshot, one by one."""

from __future__ import annotations

from topics.engine.shared.topic_snapshot import TopicImage, TopicsSnapshot


def topic_images(snapshot: TopicsSnapshot) -> list[TopicImage]:
    """Return the images of all its topics, also of those that it has as columns."""
    images = list(snapshot.topics)
    for block in snapshot.plain:
        for at, name in enumerate(block.names):
            image = TopicImage(name, block.ids[at], block.orders[at], block.configs[block.config[at]], block.heads[at])
            image.last_ts, image.generation = block.last_ts[at], block.generations[at]
            image.incarnation = block.incarnations[16 * at : 16 * at + 16]
            images.append(image)
    return images
