"""`topics`: an append-only event log for one machine. The embedded API lives here."""

__version__ = "0.1.0"
