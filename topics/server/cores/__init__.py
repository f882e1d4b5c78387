"""The other cores of a server: who owns which topic, and how connections and requests get there."""
