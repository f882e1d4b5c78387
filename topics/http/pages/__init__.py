"""Pages for people: `/` and `/ui`, each one piece of HTML that is served from memory.

`home.html` and the files of `ui/` are the source, and there is no build step: scripts
are sent without lines of comments and indentation.
"""
