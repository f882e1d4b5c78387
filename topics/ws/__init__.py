"""WebSocket without a socket: handshake check, frames over wsproto, JSON commands and replies."""
