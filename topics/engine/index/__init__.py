"""Where the records of a topic are: chunks of columns, tags, what each file holds."""
