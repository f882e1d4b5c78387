"""WebSocket without a socket: the handshake's check, frames over wsproto, the JSON commands and their replies."""
