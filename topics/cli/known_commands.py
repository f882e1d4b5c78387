"""The commands of `topics` as a table: `topics --help` reads it, and loads none of them."""

from __future__ import annotations

from typing import NamedTuple


class KnownCommand(NamedTuple):
    """One command. where: its module below `topics.cli`, and the function or Typer app in it."""

    name: str
    where: str
    help: str


SECTIONS: dict[str, tuple[KnownCommand, ...]] = {
    "Records": (
        KnownCommand("put", "commands.record_commands:put", "Append records."),
        KnownCommand("get", "commands.record_commands:get", "Print records up to the head."),
        KnownCommand("tail", "commands.record_commands:tail", "Print records as they come."),
        KnownCommand("delete", "commands.record_commands:delete", "Delete records for good."),
    ),
    "Topics": (
        KnownCommand("ls", "commands.topic_commands:ls", "List topics."),
        KnownCommand("stat", "commands.topic_commands:stat", "Show the state of topics."),
        KnownCommand("create", "commands.topic_commands:create", "Create a topic."),
        KnownCommand("set", "commands.topic_commands:change", "Change settings of a topic."),
        KnownCommand("rm", "commands.topic_commands:rm", "Remove topics."),
        KnownCommand("export", "commands.transfer_commands:export", "Write a topic as JSON lines."),
        KnownCommand("import", "commands.transfer_commands:import_", "Append the records of a file."),
    ),
    "Queues, readers, routers": (
        KnownCommand("queue", "commands.queue_commands:app", "Claim jobs, and run a command for each."),
        KnownCommand("reader", "commands.reader_commands:app", "Cursors that a topic remembers."),
        KnownCommand("router", "commands.router_commands:app", "Copies from topic to topic."),
    ),
    "Server": (
        KnownCommand("serve", "serving.serve:serve", "Serve topics over HTTP."),
        KnownCommand("config", "config_command:app", "Show settings, and where each is from."),
        KnownCommand("top", "commands.top_command:top", "Show which topics are written to."),
        KnownCommand("doctor", "directory_commands:doctor", "Report what this machine supports."),
        KnownCommand("fsck", "directory_commands:fsck", "Verify a stopped data directory."),
        KnownCommand("backup", "backups.backup_commands:backup", "Copy all topics, as of one instant."),
        KnownCommand("restore", "backups.backup_commands:restore", "Make a data directory of a backup."),
        KnownCommand("mirror", "backups.mirror_command:mirror", "Follow a server, in a directory."),
        KnownCommand("promote", "backups.promote_command:promote", "Make a data directory of a mirror."),
        KnownCommand("verify", "backups.backup_commands:verify", "Verify a backup."),
        KnownCommand("copy-backup", "backups.copy_command:copy_backup", "Copy backups to a bucket, and back."),
        KnownCommand("bridge", "commands.bridge_command:bridge", "Carry topics to Kafka or NATS, or from there."),
        KnownCommand("pipeline", "pipeline:app", "Jobs over whole topics: Parquet, checks, roll-ups."),
        KnownCommand("bench", "bench:app", "Measure latency and throughput."),
    ),
    "This command": (
        KnownCommand("context", "commands.context_commands:app", "Names for servers."),
        KnownCommand("completion", "commands.completion_command:completion", "Completion for bash, zsh and fish."),
    ),
}
COMMANDS = {known.name: known for section in SECTIONS.values() for known in section}
