"""The commands on backups and archives, and copies of them in object stores."""
