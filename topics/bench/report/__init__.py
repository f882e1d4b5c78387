"""The page of a result: one file of HTML, which needs no other file and no network."""
