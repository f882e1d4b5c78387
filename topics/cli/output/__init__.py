"""Values as text: tables for a terminal, JSON lines for a pipe, and formats of the caller's own."""
