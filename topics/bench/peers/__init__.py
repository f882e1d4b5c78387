"""The sides of a comparison other than this server: the library, other systems."""
