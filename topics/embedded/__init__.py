"""The library: the engine of the server, driven by the threads that call it."""
