"""Pages for people: `/` and `/ui`, each one piece of HTML that is served from memory.

`home.html` and the files of `ui/` are served as they are: there is no build step.
"""
