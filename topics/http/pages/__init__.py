"""Pages for people: `/` and `/ui`, each one piece of HTML that is served from memory.

`home.html` and the files of `ui/` are the source, and there is no build step: what is sent differs
only in lines of comments and in indentation.
"""
