"""Appends that no thread waits for yet: pendings, gathered records, offers that may be refused."""
